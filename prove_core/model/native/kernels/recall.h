// What the context says about a token's candidates (see `recall.py`): each scores higher the longer the run of tokens
// that it has followed before and that ends the context now.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "choices.h"

namespace prove {

constexpr int LONGEST = PROVE_LONGEST;  // tokens of a match

struct Recall {
    float totals[LONGEST + 1];  // by the length of the match
    float latest;               // for what followed the latest of the longest matches
};

class Context {
  public:
    Context(const int32_t* known, int32_t length) : tokens(known, known + length) {}

    void add(int64_t token) { tokens.push_back(int32_t(token)); }

    // Adds to the scores of ids that may come next, CANDIDATES at most.
    void recall(const Recall& recall, const int64_t* ids, int count, float* scores) const {
        int matches[CANDIDATES] = {};
        int64_t latest = -1;
        int longest = 1, size = int(tokens.size());
        each_after(tokens[size - 1], [&](int place) {
            int length = match(place);
            if (length >= longest) longest = length, latest = tokens[place];
            for (int i = 0; i < count; i++)
                if (ids[i] == tokens[place]) matches[i] = std::max(matches[i], length);
        });
        for (int i = 0; i < count; i++)
            scores[i] += recall.totals[matches[i]] + (ids[i] == latest ? recall.latest : 0.0f);
    }

  private:
    std::vector<int32_t> tokens;

    // `step(place)` for each token, in order, that follows one like this.
    template <class Step>
    void each_after(int32_t token, Step step) const {
        int before = 0, last = int(tokens.size()) - 1;
        for (; before + LANES <= last; before += LANES)
            for (uint32_t found = lanes(load<vi>(&tokens[before]) == token); found; found &= found - 1)
                step(before + __builtin_ctz(found) + 1);
        for (; before < last; before++)
            if (tokens[before] == token) step(before + 1);
    }

    // How many tokens before a place also end the context.
    int match(int place) const {
        int length = 0, size = int(tokens.size());
        while (length < LONGEST && length < place && tokens[place - 1 - length] == tokens[size - 1 - length]) length++;
        return length;
    }
};

}  // namespace prove
