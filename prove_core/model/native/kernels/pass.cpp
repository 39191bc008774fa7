// A forward pass of a decoder in one parallel region: threads share each stage's work and meet at its end.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "attention.h"
#include "team.h"
#include "walk.h"

namespace prove {

// What a pass needs beside the model, kept for the next one.
struct Workspace {
    Rows input, heads, inner, thin;
    Buffer<bf16> qkv;
    AttentionPlan attention;
    std::vector<AttentionShare> shares;
    Barrier barrier;
};

class Runner {
  public:
    Runner(const Model& model, const Pass& pass, Workspace& space)
        : model(model), pass(pass), space(space), panels(pass.rows) {
        heads = model.query_heads + 2 * model.kv_heads;
        width = heads * model.head_dim;
        prepare();
    }

    void run(Team team) {
        if (!pass.products_only) space.shares[team.index].make(model, pass, space.attention, team.index, team.size);
        for (int index = 0; index < model.count; index++) run(team, index);
        answer(team);
    }

  private:
    const Model& model;
    const Pass& pass;
    Workspace& space;
    Panels panels;
    int heads, width;

    void prepare() {
        int most_inner = 0, most_rank = 0;
        for (int i = 0; i < model.count; i++) {
            const Layer& layer = model.layers[i];
            most_inner = std::max(most_inner, layer.down.inputs);
            for (const Weight* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down})
                most_rank = std::max(most_rank, weight->rank);
        }
        int rows = pass.rows;
        space.input.fit(rows, model.hidden);
        space.heads.fit(rows, model.query_heads * model.head_dim);
        space.inner.fit(rows, most_inner);
        space.thin.fit(rows, most_rank);
        space.qkv.resize(size_t(rows) * width);
        if (int(space.shares.size()) < pass.threads) space.shares.resize(pass.threads);
        if (!pass.products_only) space.attention.make(model, pass);
    }

    void run(Team team, int index) {
        const Layer& layer = model.layers[index];
        if (!pass.products_only) normalize(team, layer.input_norm);
        product<1>(team, layer.qkv, space.input, &layer.o, [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++)
                for (int part = 0; part < WIDE; part += LANES)
                    narrow(&space.qkv[int64_t(first + r) * width + block * WIDE + part],
                           biased(layer.qkv, block, sums[0], r, part));
        });
        if (!pass.products_only) {
            AttentionShare& share = space.shares[team.index];
            Attention attention(model, layer, pass, space.attention);
            attention.expect(share, share.begin);
            rotate(team, layer);
            attention.attend(share, space.qkv.data(), space.heads);
            team.meet();
        }
        add_product(team, layer.o, space.heads, &layer.gate_up);
        if (!pass.products_only) normalize(team, layer.middle_norm);
        product<2>(team, layer.gate_up, space.input, &layer.down, [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++)
                for (int part = 0; part < WIDE; part += LANES) {
                    vf gate = biased(layer.gate_up, block, sums[0], r, part);
                    vf up = biased(layer.gate_up, block + 1, sums[1], r, part);
                    vf active = rounded(gate / (1.0f + exponential(-gate)));
                    narrow(space.inner.row(first + r) + block / 2 * WIDE + part, active * up);
                }
        });
        add_product(team, layer.down, space.inner, index + 1 < model.count ? &model.layers[index + 1].qkv : &model.head);
    }

    using Sums = float[TALL * WIDE];

    static vf biased(const Weight& weight, int block, const Sums& sums, int row, int part) {
        vf sum = load<vf>(sums + row * WIDE + part);
        return rounded(weight.bias ? sum + load<vf>(weight.bias + block * WIDE + part) : sum);
    }

    // All blocks of y = W x, shared among the threads; `done(block, first row, rows, sums)` takes TOGETHER of them at
    // once, sums[TOGETHER][rows][WIDE].
    template <int TOGETHER, class Done>
    void product(Team team, const Weight& weight, const Rows& x, const Weight* next, Done done) {
        bool adapts = weight.rank && pass.tokens < pass.rows;
        if (adapts) reduce(team, weight, x);
        multiply_blocks<TOGETHER>(team, weight, x, panels, adapts, next, done);
        team.meet();
    }

    template <int TOGETHER, class Done>
    void multiply_blocks(Team team, const Weight& weight, const Rows& x, const Panels& panels,
                         bool adapts, const Weight* next, Done done) {
        int pairs = weight.inputs / 2, steps = weight.outputs / WIDE / TOGETHER;
        int64_t length = int64_t(pairs) * WIDE;
        for (int step = team.begin(steps); step < team.end(steps); step++)
            for (int p = 0; p < panels.count; p++) {
                int first = panels.start(p), size = panels.size(p), from = std::max(0, pass.tokens - first);
                alignas(64) Sums sums[TOGETHER];
                for (int i = 0; i < TOGETHER; i++) {
                    int block = step * TOGETHER + i;
                    const uint32_t* w = weight.blocks + block * length;
                    bool last = step + 1 == team.end(steps);
                    const uint32_t* then = last ? next ? first_of(team, *next) : w : w + TOGETHER * length;
                    Ahead ahead = {then + length / LANES * p / panels.count * LANES, LANES};
                    if (panels.count == 1) ahead = {w + NEAR, WIDE};
                    MULTIPLY[size](x.at(first), x.stride, w, pairs, sums[i], ahead);
                    if (adapts && from < size) adapt(weight, block, first, size, from, sums[i]);
                }
                done(step * TOGETHER, first, size, sums);
            }
    }

    // What a thread reads first of a weight.
    const uint32_t* first_of(Team team, const Weight& weight) const {
        bool adapts = weight.rank && pass.tokens < pass.rows;
        int64_t pairs = weight.inputs / 2;
        return adapts ? weight.a + team.begin(weight.rank / LANES) * pairs * LANES
                      : weight.blocks + team.begin(weight.outputs / WIDE) * pairs * WIDE;
    }

    // sums += B t for the rows of a panel from number `from` on
    void adapt(const Weight& weight, int block, int first, int size, int from, float* sums) const {
        int pairs = weight.part_rank / 2;
        const uint32_t* b = weight.b + int64_t(block) * pairs * WIDE;
        MULTIPLY_ON[size - from](space.thin.at(first + from) + weight.parts[block] * pairs, space.thin.stride, b, pairs,
                              sums + from * WIDE, {b + pairs * WIDE, WIDE});
    }

    // t = scale * A x of placeholder rows.
    void reduce(Team team, const Weight& weight, const Rows& x) {
        int pairs = weight.inputs / 2, blocks = weight.rank / LANES;
        for (int block = team.begin(blocks); block < team.end(blocks); block++)
            for (int p = 0; p < panels.count; p++) {
                int first = panels.start(p), size = panels.size(p), from = std::max(0, pass.tokens - first);
                if (from >= size) continue;
                const uint32_t* a = weight.a + int64_t(block) * pairs * LANES;
                bool last = block + 1 == team.end(blocks);
                const uint32_t* then = last ? weight.blocks + team.begin(weight.outputs / WIDE) * int64_t(pairs) * WIDE
                                            : a + int64_t(pairs) * LANES;
                alignas(64) float sums[TALL * LANES];
                MULTIPLY_NARROW[size - from](x.at(first + from), x.stride, a, pairs, sums, {then, last ? WIDE : LANES});
                for (int r = from; r < size; r++)
                    narrow(space.thin.row(first + r) + block * LANES,
                           load<vf>(sums + (r - from) * LANES) * weight.scale);
            }
        team.meet();
    }

    // hidden += W x
    void add_product(Team team, const Weight& weight, const Rows& x, const Weight* next) {
        product<1>(team, weight, x, next, [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++)
                for (int part = 0; part < WIDE; part += LANES) {
                    bf16* to = pass.hidden + int64_t(first + r) * model.hidden + block * WIDE + part;
                    narrow(to, numbers(to) + biased(weight, block, sums[0], r, part));
                }
        });
    }

    // Threads share rows, or else columns.
    void normalize(Team team, const float* weight) {
        if (pass.rows >= team.size)
            normalize(weight, team.begin(pass.rows), team.end(pass.rows), 0, model.hidden);
        else
            normalize(weight, 0, pass.rows, team.begin(model.hidden / WIDE) * WIDE, team.end(model.hidden / WIDE) * WIDE);
        team.meet();
    }

    void normalize(const float* weight, int row, int last_row, int begin, int end) {
        for (; row < last_row; row++) {
            const bf16* from = pass.hidden + int64_t(row) * model.hidden;
            bf16* to = space.input.row(row);
            vf scale = splat(inverse_norm(from, model.hidden));
            for (int i = begin; i < end; i += LANES)
                narrow(to + i, rounded(numbers(from + i) * scale) * load<vf>(weight + i));
        }
    }

    float inverse_norm(const bf16* x, int size) const {
        vf squares = {};
        for (int i = 0; i < size; i += LANES) squares += numbers(x + i) * numbers(x + i);
        return 1.0f / std::sqrt(total(squares) / size + model.epsilon);
    }

    // Queries and keys to their positions, keys and values into the cache.
    void rotate(Team team, const Layer& layer) {
        int dim = model.head_dim;
        int64_t work = int64_t(pass.rows) * heads;
        for (int item = team.begin(work); item < team.end(work); item++) {
            int row = item / heads, head = item % heads;
            bf16* x = &space.qkv[int64_t(row) * width + head * dim];
            bool is_key = head >= model.query_heads, is_value = head >= model.query_heads + model.kv_heads;
            const float* norm = is_key ? layer.k_norm : layer.q_norm;
            if (!is_value) turn(x, norm, pass.positions[row]);
            if (!is_key) continue;
            int own = head - model.query_heads - (is_value ? model.kv_heads : 0);
            int64_t place = (pass.slots[row] * model.kv_heads + own) * dim;
            memcpy((is_value ? layer.values : layer.keys) + place, x, dim * sizeof(bf16));
        }
        team.meet();
    }

    void turn(bf16* x, const float* norm, int64_t position) const {
        int dim = model.head_dim;
        if (norm) {
            vf scale = splat(inverse_norm(x, dim));
            for (int i = 0; i < dim; i += LANES)
                narrow(x + i, rounded(numbers(x + i) * scale) * load<vf>(norm + i));
        }
        const bf16 *cosine = model.cosines + position * dim, *sine = model.sines + position * dim;
        for (int i = 0; i < dim / 2; i += LANES) {
            int j = i + dim / 2;
            vf low = numbers(x + i), high = numbers(x + j);
            narrow(x + i, rounded(low * numbers(cosine + i)) - rounded(high * numbers(sine + i)));
            narrow(x + j, rounded(high * numbers(cosine + j)) + rounded(low * numbers(sine + j)));
        }
    }

    // Final norm and head of the rows that want logits.
    void answer(Team team) {
        if (!pass.output_count) return;
        int hidden = model.hidden;
        Panels outputs(pass.output_count);
        for (int i = team.begin(outputs.rows); i < team.end(outputs.rows); i++) {
            const bf16* from = pass.hidden + int64_t(pass.outputs[i]) * hidden;
            bf16* to = pass.states + int64_t(i) * hidden;
            vf scale = splat(inverse_norm(from, hidden));
            for (int j = 0; j < hidden; j += LANES) {
                narrow(to + j, rounded(numbers(from + j) * scale) * load<vf>(model.final_norm + j));
            }
            memcpy(space.input.row(i), to, hidden * sizeof(bf16));
        }
        team.meet();
        const Weight& weight = model.head;
        multiply_blocks<1>(team, weight, space.input, outputs, false, nullptr,
                           [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++) {
                float row[WIDE];
                for (int part = 0; part < WIDE; part += LANES) store(row + part, biased(weight, block, sums[0], r, part));
                int columns = std::min(WIDE, model.vocabulary - block * WIDE);
                memcpy(pass.logits + int64_t(first + r) * model.vocabulary + block * WIDE, row, columns * sizeof(float));
            }
        });
    }
};

}  // namespace prove

extern "C" {

prove::Workspace* prove_workspace() { return new prove::Workspace; }

void prove_release(prove::Workspace* space) { delete space; }

void prove_pass(const prove::Model* model, const prove::Pass* pass, prove::Workspace* space) {
    prove::Runner runner(*model, *pass, *space);
#pragma omp parallel num_threads(pass->threads)
    runner.run({omp_get_thread_num(), omp_get_num_threads(), space->barrier});
}

// Of each row of logits its best id, its largest logit and the sum of e ^ (logit - largest).
void prove_read(const float* logits, int32_t rows, int64_t vocabulary, int32_t threads, int64_t* best, float* most,
                float* sums) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int i = 0; i < rows; i++) {
        prove::Row row{logits + i * vocabulary, vocabulary};
        most[i] = row.most();
        best[i] = row.first(most[i]);
        sums[i] = row.sum(most[i]);
    }
}

// Of each pair of a row and an id.
void prove_probabilities(const float* logits, int64_t vocabulary, const float* most, const float* sums, int32_t count,
                         const int64_t* rows, const int64_t* ids, float* probabilities) {
    for (int i = 0; i < count; i++) {
        float logit = logits[rows[i] * vocabulary + ids[i]] - most[rows[i]];
        probabilities[i] = prove::exponential(prove::splat(logit))[0] / sums[rows[i]];
    }
}

void prove_walk(const prove::Head* head, const prove::Block* blocks, int32_t count, const float* logits,
                const prove::bf16* states, int32_t threads, int64_t* ids, float* probabilities) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int i = 0; i < count; i++) prove::Walk(*head).down(blocks[i], logits, states, ids, probabilities);
}
}
