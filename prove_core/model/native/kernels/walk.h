// The sequential head down blocks of placeholders (see `sequential.py`): a block's tokens one after another, each from
// its row's leading candidates, whose logits get what the head's state adds to them.
#pragma once
#include <vector>

#include "choices.h"
#include "panels.h"
#include "recall.h"

namespace prove {

struct Head {
    const uint32_t* a;  // blocks of weights: [width, hidden], [width, hidden], [width, width], [hidden, width]
    const uint32_t* b;
    const uint32_t* r;
    const uint32_t* o;
    const float* position;  // [placeholders, width]
    const bf16* embedding;  // [vocabulary, hidden]
    const bf16* output;     // [vocabulary, hidden]
    const Recall* recall;   // or none
    int32_t hidden, width, placeholders, vocabulary;
};

// A block's rows among those of the pass, and the tokens that they follow: one at least, all where the head recalls.
struct Block {
    const int32_t* context;
    int32_t length, first, rows;
};

class Walk {
  public:
    explicit Walk(const Head& head) : head(head), normal(head.hidden), state(head.width), inner(head.width), moved(head.hidden) {}

    // logits [rows, vocabulary], states [rows, hidden]; ids and their probabilities among the candidates, by row.
    void down(const Block& block, const float* logits, const bf16* states, int64_t* ids, float* probabilities) {
        std::fill(state.begin(), state.end(), bf16(0));
        context.start(block.context, block.length);
        int64_t token = block.context[block.length - 1];
        for (int depth = 0; depth < block.rows; depth++) {
            int64_t row = block.first + depth;
            follow(states + row * head.hidden, head.embedding + token * head.hidden, depth);
            token = choose(Row{logits + row * head.vocabulary, head.vocabulary}, probabilities + row);
            context.add(token);
            ids[row] = token;
        }
    }

  private:
    const Head& head;
    Context context;
    Buffer<bf16> normal, state, inner, moved;

    // state = silu(A norm(hidden) + position + B norm(previous) + R norm(state)), rounded as torch rounds
    void follow(const bf16* hidden, const bf16* previous, int depth) {
        int width = head.width;
        const float* place = head.position + int64_t(std::min(depth, head.placeholders - 1)) * width;
        normalize(hidden, head.hidden);
        multiply_by(head.a, head.hidden, width, [&](int i, vf x) { narrow(&inner[i], x + load<vf>(place + i)); });
        normalize(previous, head.hidden);
        multiply_by(head.b, head.hidden, width, [&](int i, vf x) { narrow(&inner[i], numbers(&inner[i]) + x); });
        normalize(state.data(), width);
        multiply_by(head.r, width, width, [&](int i, vf x) {
            vf sum = rounded(numbers(&inner[i]) + x);
            narrow(&state[i], sum / (1.0f + exponential(-sum)));
        });
        std::copy(state.begin(), state.end(), normal.begin());
        multiply_by(head.o, width, head.hidden, [&](int i, vf x) { narrow(&moved[i], x); });
    }

    // `normal` = x less its mean, over its deviation
    void normalize(const bf16* x, int size) {
        vf sum = {}, squares = {};
        for (int i = 0; i < size; i += LANES) sum += numbers(x + i);
        float mean = total(sum) / size;
        for (int i = 0; i < size; i += LANES) squares += (numbers(x + i) - mean) * (numbers(x + i) - mean);
        float scale = 1.0f / std::sqrt(total(squares) / size + 1e-5f);
        for (int i = 0; i < size; i += LANES) narrow(&normal[i], (numbers(x + i) - mean) * scale);
    }

    // `done(first output, sixteen of them rounded)` for all of W times `normal`
    template <class Done>
    void multiply_by(const uint32_t* blocks, int inputs, int outputs, Done done) {
        for (int column = 0; column < outputs; column += WIDE) {
            float sums[WIDE];
            const uint32_t* w = blocks + int64_t(column) * inputs / 2;
            MULTIPLY[1]((const uint32_t*)normal.data(), 1, w, inputs / 2, sums, {w, 0});
            for (int part = 0; part < WIDE; part += LANES) done(column + part, rounded(load<vf>(sums + part)));
        }
    }

    int64_t choose(const Row& row, float* probability) {
        float scores[CANDIDATES];
        int64_t ids[CANDIDATES];
        int count = int(std::min<int64_t>(CANDIDATES, row.size));
        leading(row, count, scores, ids);
        for (int i = 0; i < count; i++) {
            vf sum = {};
            const bf16* output = head.output + ids[i] * head.hidden;
            for (int k = 0; k < head.hidden; k += WIDE) sum = dot(sum, load<vu>(output + k), load<vu>(&moved[k]));
            scores[i] += number(rounded(total(sum)));
        }
        if (head.recall) context.recall(*head.recall, ids, count, scores);
        int best = 0;
        for (int i = 1; i < count; i++)
            if (scores[i] > scores[best] || (scores[i] == scores[best] && ids[i] < ids[best])) best = i;
        float sum = 0.0f;
        for (int i = 0; i < count; i++) sum += exponential(splat(scores[i] - scores[best]))[0];
        *probability = 1.0f / sum;
        return ids[best];
    }
};

}  // namespace prove
