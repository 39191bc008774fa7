// What the context says about a token's candidates (see `recall.py`): each scores higher the longer the run of tokens
// that it has followed before and that ends the context now.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace prove {

constexpr int CANDIDATES = 32;
constexpr int LONGEST = 6;  // tokens of a match

struct Recall {
    float totals[LONGEST + 1];  // by the length of the match
    float latest;               // for what followed the latest of the longest matches
};

class Context {
  public:
    void start(const int32_t* known, int32_t length) { tokens.assign(known, known + length); }

    void add(int64_t token) { tokens.push_back(int32_t(token)); }

    // Adds to the scores of ids that may come next, CANDIDATES at most.
    void recall(const Recall& recall, const int64_t* ids, int count, float* scores) const {
        int matches[CANDIDATES] = {};
        int64_t latest = -1;
        int longest = 1, size = int(tokens.size());
        for (int place = 1; place < size; place++) {
            if (tokens[place - 1] != tokens[size - 1]) continue;
            int length = match(place);
            if (length >= longest) longest = length, latest = tokens[place];
            for (int i = 0; i < count; i++)
                if (ids[i] == tokens[place]) matches[i] = std::max(matches[i], length);
        }
        for (int i = 0; i < count; i++)
            scores[i] += recall.totals[matches[i]] + (ids[i] == latest ? recall.latest : 0.0f);
    }

  private:
    std::vector<int32_t> tokens;

    // How many tokens before a place also end the context.
    int match(int place) const {
        int length = 0, size = int(tokens.size());
        while (length < LONGEST && length < place && tokens[place - 1 - length] == tokens[size - 1 - length]) length++;
        return length;
    }
};

}  // namespace prove
