// The sequential head down blocks of placeholders (see `sequential.py`): a block's tokens one after another, each from
// its row's leading candidates, whose logits get what the head's state adds to them.
#pragma once
#include <cstring>
#include <numeric>
#include <vector>

#include "choices.h"
#include "panels.h"
#include "recall.h"

namespace prove {

struct Head {
    const uint32_t* a;  // blocks of weights: [width, hidden], [width, width], [hidden, width]
    const uint32_t* r;
    const uint32_t* o;
    const float* position;  // [placeholders, width]
    const bf16* previous;   // [vocabulary, width]: what the head's B makes of each token's embedding
    const bf16* output;     // [vocabulary, hidden]
    const Recall* recall;   // or none
    int32_t hidden, width, placeholders, vocabulary;
};

// A block's rows: those of the pass from `first` on, then `tail_rows` that an earlier walk has kept; and the tokens that
// it follows, all where the head recalls. The last `known` of them are in the place of the block's first rows, so one
// more at least comes before them. Where `kept` is not null, all rows are kept there.
struct Block {
    const int32_t* context;
    const char* tail;
    char* kept;
    int32_t length, first, rows, tail_rows, known;
};

// Alternatives to a block's tokens, see `alternatives.py` for what the numbers mean.
constexpr int RANKS = PROVE_RANKS;
constexpr int MOST = PROVE_MOST;
constexpr float LEAST = PROVE_LEAST;
constexpr float GOES_ON = 0.1f;  // chance of a token from which on it is worth a step to see what comes behind

// A token of an alternative that begins behind the block's first `accepted` ones, and its probability there.
struct Other {
    int32_t accepted, alternative, token;
    float probability;
};

struct Others {
    int32_t count;
    Other tokens[MOST];  // the likeliest first
};

// y = x less its mean, over its deviation.
static void normalize(const bf16* x, int size, bf16* y) {
    vf sum = {}, squares = {};
    for (int i = 0; i < size; i += LANES) sum += numbers(x + i);
    float mean = total(sum) / size;
    for (int i = 0; i < size; i += LANES) squares += (numbers(x + i) - mean) * (numbers(x + i) - mean);
    float scale = 1.0f / std::sqrt(total(squares) / size + 1e-5f);
    for (int i = 0; i < size; i += LANES) narrow(y + i, (numbers(x + i) - mean) * scale);
}

// `done(first output, sixteen of them rounded)` for TOGETHER blocks of W times one row: a sum waits for its last step,
// so some of them run beside each other. Each in order, as in `panels.h`.
template <int TOGETHER, class Done>
static void multiply_some(const bf16* x, const uint32_t* w, int inputs, Done done) {
    constexpr int PARTS = WIDE / LANES;
    const uint32_t* pairs = (const uint32_t*)x;
    vf sums[TOGETHER][PARTS] = {};
    for (int k = 0; k < inputs / 2; k++) {
        vu input = splat_pair(pairs[k]);
#pragma GCC unroll 8
        for (int i = 0; i < TOGETHER; i++)
            for (int part = 0; part < PARTS; part++) {
                const uint32_t* from = w + (int64_t(i) * inputs / 2 + k) * WIDE + part * LANES;
                sums[i][part] = dot(sums[i][part], input, load<vu>(from));
            }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TOGETHER; i++)
        for (int part = 0; part < PARTS; part++) done(i * WIDE + part * LANES, rounded(sums[i][part]));
}

// All blocks of W times one row.
template <class Done>
static void multiply_by(const bf16* x, const uint32_t* w, int inputs, int outputs, Done done) {
    int column = 0;
    auto some = [&](auto together) {
        for (; column + together * WIDE <= outputs; column += together * WIDE)
            multiply_some<together>(x, w + int64_t(column) * inputs / 2, inputs,
                                    [&](int i, vf y) { done(column + i, y); });
    };
    some(std::integral_constant<int, 4>{});
    some(std::integral_constant<int, 1>{});
}

// What B makes of embeddings [count, hidden]: [count, width].
static void embed(const uint32_t* b, const bf16* embedding, int hidden, int width, int count, bf16* to) {
    Buffer<bf16> normal(hidden);
    for (int i = 0; i < count; i++) {
        normalize(embedding + int64_t(i) * hidden, hidden, normal.data());
        multiply_by(normal.data(), b, hidden, width, [&](int k, vf y) { narrow(to + int64_t(i) * width + k, y); });
    }
}

class Walk {
  public:
    // Down `count` blocks of a pass: logits [rows, vocabulary], states [rows, hidden].
    Walk(const Head& head, const Block* blocks, int count, const float* logits, const bf16* states)
        : head(head), logits(logits), states(states) {
        for (int i = 0; i < count; i++) {
            const Block& block = blocks[i];
            begins.push_back(int(places.size()));
            for (int depth = 0; depth < block.rows; depth++) places.push_back({block.first + depth, depth, nullptr});
            for (int i = 0; i < block.tail_rows; i++) places.push_back({0, 0, block.tail + i * kept_size(head.width)});
        }
        begins.push_back(int(places.size()));
        leading.resize(places.size());
        inner.resize(places.size() * head.width);
    }

    int rows() const { return int(places.size()); }

    // Bytes of a row that is kept.
    static int64_t kept_size(int width) { return sizeof(Leading) + width * sizeof(bf16); }

    // Into the caches with what the way down reads of the head again and again: the pass has driven it out.
    void fetch() const {
        for (int64_t i = 0; i < int64_t(head.width) * head.width / 2; i += LANES) expect(head.r + i);
        for (int64_t i = 0; i < int64_t(head.hidden) * head.width / 2; i += LANES) expect(head.o + i);
    }

    // What depends on no choice: a row's candidates, and A norm(hidden) + position.
    void prepare(int i) {
        Place place = places[i];
        if (place.kept)
            memcpy(&leading[i], place.kept, sizeof(Leading));
        else
            leading[i].find(Row{logits + place.row * head.vocabulary, head.vocabulary});
        for (int k = 0; k < leading[i].count; k++)
            for (const bf16 *x = effects(leading[i].ids[k]), *end = x + head.hidden; x < end; x += 2 * LANES) expect(x);
        if (place.kept) {
            memcpy(&inner[int64_t(i) * head.width], place.kept + sizeof(Leading), head.width * sizeof(bf16));
            return;
        }
        Buffer<bf16> normal(head.hidden);
        normalize(states + place.row * head.hidden, head.hidden, normal.data());
        const float* offset = head.position + int64_t(std::min(place.depth, head.placeholders - 1)) * head.width;
        bf16* to = &inner[int64_t(i) * head.width];
        multiply_by(normal.data(), head.a, head.hidden, head.width,
                    [&](int k, vf x) { narrow(to + k, x + load<vf>(offset + k)); });
    }

    // Down block i once all rows are prepared; ids and their probabilities among the candidates, behind those of the
    // blocks before, a number for each row: of rows whose tokens are known nothing is said.
    void down(int i, const Block& block, int64_t* ids, float* probabilities, Others& others) const {
        Context context(block.context, block.length);
        State state(head.width);
        std::vector<Way> ways;
        float reach = 1.0f;
        const int32_t* before = block.context + block.length - 1 - block.known;
        for (int depth = 0; depth < block.known; depth++) follow(prepared(begins[i] + depth), before[depth], state.data());
        int64_t token = before[block.known];
        int first = begins[i] + block.known, rows = begins[i + 1] - first;
        for (int depth = 0; depth < rows; depth++) {
            Choice choice = step(first + depth, token, state, context);
            for (int k = 0; k < choice.count; k++) {
                float chance = reach * choice.others[k].probability;
                if (chance >= LEAST) ways.push_back({chance, depth, depth, NEW, choice.others[k], state, context});
            }
            token = choice.best.id;
            context.add(token);
            reach *= choice.best.probability;
            ids[first + depth] = token;
            probabilities[first + depth] = choice.best.probability;
        }
        beside(first, rows, ways, others);
        if (block.kept) keep(i, block.kept);
    }

  private:
    struct Place {
        int64_t row;
        int depth;
        const char* kept;  // instead of a row of the pass
    };

    using State = Buffer<bf16>;

    struct Candidate {
        int64_t id;
        float probability;
    };

    // Of a row: the likeliest candidate, and some of the next ones in order.
    struct Choice {
        Candidate best, others[RANKS];
        int count;
    };

    static constexpr int NEW = -1;

    // An alternative as far as it goes, and the token that would be next, at a depth; `chance` is that of all of it.
    struct Way {
        float chance;
        int accepted, depth, alternative;
        Candidate next;
        State state;
        Context context;
    };

    void keep(int i, char* to) const {
        for (int place = begins[i]; place < begins[i + 1]; place++, to += kept_size(head.width)) {
            memcpy(to, &leading[place], sizeof(Leading));
            memcpy(to + sizeof(Leading), prepared(place), head.width * sizeof(bf16));
        }
    }

    const bf16* prepared(int place) const { return &inner[int64_t(place) * head.width]; }

    // The likeliest ways, one token after another, down rows from `first` on.
    void beside(int first, int rows, std::vector<Way>& ways, Others& others) const {
        int alternatives = 0;
        for (others.count = 0; others.count < MOST && !ways.empty(); others.count++) {
            auto best = std::max_element(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.chance < b.chance; });
            Way way = std::move(*best);
            ways.erase(best);
            if (way.alternative == NEW) way.alternative = alternatives++;
            others.tokens[others.count] = {way.accepted, way.alternative, int32_t(way.next.id), way.next.probability};
            if (++way.depth == rows || way.chance < GOES_ON) continue;
            way.context.add(way.next.id);
            way.next = step(first + way.depth, way.next.id, way.state, way.context).best;
            way.chance *= way.next.probability;
            if (way.chance >= LEAST) ways.push_back(std::move(way));
        }
    }

    // One row behind a token, with the state there, which it moves on.
    Choice step(int place, int64_t token, State& state, const Context& context) const {
        Buffer<bf16> moved(head.hidden);
        follow(prepared(place), token, state.data());
        multiply_by(state.data(), head.o, head.width, head.hidden, [&](int k, vf x) { narrow(&moved[k], x); });
        return choose(leading[place], moved.data(), context);
    }

    const Head& head;
    const float* logits;
    const bf16* states;
    std::vector<int> begins;  // of each block among the places, and their end
    std::vector<Place> places;
    std::vector<Leading> leading;
    Buffer<bf16> inner;  // [places, width]

    const bf16* effects(int64_t id) const { return head.output + id * head.hidden; }

    // state = silu(A norm(hidden) + position + B norm(previous) + R norm(state)), rounded as torch rounds
    void follow(const bf16* prepared, int64_t token, bf16* state) const {
        const bf16* previous = head.previous + token * head.width;
        Buffer<bf16> normal(head.width);
        normalize(state, head.width, normal.data());
        multiply_by(normal.data(), head.r, head.width, head.width, [&](int k, vf x) {
            vf sum = rounded(rounded(numbers(prepared + k) + numbers(previous + k)) + x);
            narrow(state + k, sum / (1.0f + exponential(-sum)));
        });
    }

    Choice choose(const Leading& leading, const bf16* moved, const Context& context) const {
        constexpr int TOGETHER = 8;  // products that do not wait for each other
        alignas(64) float scores[CANDIDATES];
        const int64_t* ids = leading.ids;
        int count = leading.count;
        for (int first = 0; first < CANDIDATES; first += TOGETHER) {
            const bf16* outputs[TOGETHER];
            for (int i = 0; i < TOGETHER; i++) outputs[i] = effects(ids[std::min(first + i, count - 1)]);
            vf sums[TOGETHER] = {};
            for (int k = 0; k < head.hidden; k += WIDE) {
                vu x = load<vu>(moved + k);
#pragma GCC unroll 8
                for (int i = 0; i < TOGETHER; i++) sums[i] = dot(sums[i], load<vu>(outputs[i] + k), x);
            }
            for (int i = 0; i < TOGETHER; i++)
                scores[first + i] = leading.values[first + i] + number(rounded(total(sums[i])));
        }
        if (head.recall) context.recall(*head.recall, ids, count, scores);
        int order[CANDIDATES], ranked = std::min(count, RANKS + 1);
        std::iota(order, order + count, 0);
        std::partial_sort(order, order + ranked, order + count, [&](int a, int b) {
            return scores[a] > scores[b] || (scores[a] == scores[b] && ids[a] < ids[b]);
        });
        float most = scores[order[0]], sum = 0.0f;
        for (int i = 0; i < count; i++) sum += exponential(splat(scores[i] - most))[0];
        Choice choice{{ids[order[0]], 1.0f / sum}, {}, ranked - 1};
        for (int i = 1; i < ranked; i++)
            choice.others[i - 1] = {ids[order[i]], exponential(splat(scores[order[i]] - most))[0] / sum};
        return choice;
    }
};

}  // namespace prove
