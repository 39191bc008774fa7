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
    Buffer<uint32_t> input, heads, inner, thin;
    Buffer<bf16> qkv;
    std::vector<Place> places;
    AttentionPlan attention;
    std::vector<AttentionScratch> scratch;
    std::unique_ptr<std::atomic<int>[]> next;  // item of each layer that nobody has begun
    int layers = 0;
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
        size_t rows = pass.rows;
        space.input.resize(rows * model.hidden / 2);
        space.heads.resize(rows * model.query_heads * model.head_dim / 2);
        space.inner.resize(rows * most_inner / 2);
        space.thin.resize(rows * most_rank / 2);
        space.qkv.resize(rows * width);
        if (int(space.scratch.size()) < pass.threads) space.scratch.resize(pass.threads);
        place(space.places, panels);
        space.attention.make(model, pass);
        if (space.layers < model.count) {
            space.next = std::make_unique<std::atomic<int>[]>(model.count);
            space.layers = model.count;
        }
        for (int i = 0; i < model.count; i++) space.next[i].store(0, std::memory_order_relaxed);
    }

    static void place(std::vector<Place>& places, const Panels& panels) {
        places.resize(panels.rows);
        for (int p = 0; p < panels.count; p++)
            for (int i = 0; i < panels.size(p); i++)
                places[panels.start(p) + i] = {panels.start(p), i, panels.size(p)};
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
            rotate(team, layer);
            attend(team, layer, space.next[index]);
        }
        add_product(team, layer.o, space.heads, &layer.gate_up);
        if (!pass.products_only) normalize(team, layer.middle_norm);
        product<2>(team, layer.gate_up, space.input, &layer.down, [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++)
                for (int part = 0; part < WIDE; part += LANES) {
                    vf gate = biased(layer.gate_up, block, sums[0], r, part);
                    vf up = biased(layer.gate_up, block + 1, sums[1], r, part);
                    vf active = rounded(gate / (1.0f + exponential(-gate)));
                    put(space.inner, layer.down.inputs, first + r, block / 2 * WIDE + part, rounded(active * up));
                }
        });
        add_product(team, layer.down, space.inner, index + 1 < model.count ? &model.layers[index + 1].qkv : &model.head);
    }

    using Sums = float[TALL * WIDE];

    static vf biased(const Weight& weight, int block, const Sums& sums, int row, int part) {
        vf sum = load<vf>(sums + row * WIDE + part);
        return rounded(weight.bias ? sum + load<vf>(weight.bias + block * WIDE + part) : sum);
    }

    // Sixteen bf16 of a row into values of `size` numbers stored in panels.
    void put(Buffer<uint32_t>& values, int64_t size, int row, int column, vf x) {
        bf16 numbers[LANES];
        narrow(numbers, x);
        const Place& place = space.places[row];
        uint32_t* to = place.in(values.data(), size / 2) + int64_t(column / 2) * place.stride;
        for (int i = 0; i < LANES; i += 2) to[i / 2 * place.stride] = load<uint32_t>(numbers + i);
    }

    // All blocks of y = W x, shared among the threads; `done(block, first row, rows, sums)` takes TOGETHER of them at
    // once, sums[TOGETHER][rows][WIDE].
    template <int TOGETHER, class Done>
    void product(Team team, const Weight& weight, const Buffer<uint32_t>& x, const Weight* next, Done done) {
        bool adapts = weight.rank && pass.tokens < pass.rows;
        if (adapts) reduce(team, weight, x);
        multiply_blocks<TOGETHER>(team, weight, x, panels, adapts, next, done);
        team.meet();
    }

    template <int TOGETHER, class Done>
    void multiply_blocks(Team team, const Weight& weight, const Buffer<uint32_t>& x, const Panels& panels,
                         bool adapts, const Weight* next, Done done) {
        int pairs = weight.inputs / 2, steps = weight.outputs / WIDE / TOGETHER;
        int64_t length = int64_t(pairs) * WIDE;
        for (int step = team.begin(steps); step < team.end(steps); step++)
            for (int p = 0; p < panels.count; p++) {
                int first = panels.start(p), size = panels.size(p), from = std::max(0, pass.tokens - first);
                alignas(64) Sums sums[TOGETHER] = {};
                for (int i = 0; i < TOGETHER; i++) {
                    int block = step * TOGETHER + i;
                    const uint32_t* w = weight.blocks + block * length;
                    bool last = step + 1 == team.end(steps);
                    const uint32_t* then = last ? next ? first_of(team, *next) : w : w + TOGETHER * length;
                    Ahead ahead = {then + length / LANES * p / panels.count * LANES, panels.count > 1 ? LANES : WIDE};
                    MULTIPLY[size](x.data() + int64_t(first) * pairs, size, w, pairs, sums[i], ahead);
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
        const uint32_t* t = space.thin.data() + int64_t(first) * weight.rank / 2;
        const uint32_t* b = weight.b + int64_t(block) * pairs * WIDE;
        MULTIPLY[size - from](t + weight.parts[block] * pairs * size + from, size, b, pairs, sums + from * WIDE,
                              {b + pairs * WIDE, WIDE});
    }

    // t = scale * A x of placeholder rows.
    void reduce(Team team, const Weight& weight, const Buffer<uint32_t>& x) {
        int pairs = weight.inputs / 2, blocks = weight.rank / LANES;
        for (int block = team.begin(blocks); block < team.end(blocks); block++)
            for (int p = 0; p < panels.count; p++) {
                int first = panels.start(p), size = panels.size(p), from = std::max(0, pass.tokens - first);
                if (from >= size) continue;
                const uint32_t* a = weight.a + int64_t(block) * pairs * LANES;
                bool last = block + 1 == team.end(blocks);
                const uint32_t* then = last ? weight.blocks + team.begin(weight.outputs / WIDE) * int64_t(pairs) * WIDE
                                            : a + int64_t(pairs) * LANES;
                alignas(64) float sums[TALL * LANES] = {};
                MULTIPLY_NARROW[size - from](x.data() + int64_t(first) * pairs + from, size, a, pairs, sums,
                                             {then, last ? WIDE : LANES});
                for (int r = from; r < size; r++)
                    put(space.thin, weight.rank, first + r, block * LANES,
                        rounded(load<vf>(sums + (r - from) * LANES) * weight.scale));
            }
        team.meet();
    }

    // hidden += W x
    void add_product(Team team, const Weight& weight, const Buffer<uint32_t>& x, const Weight* next) {
        product<1>(team, weight, x, next, [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++)
                for (int part = 0; part < WIDE; part += LANES) {
                    bf16* to = pass.hidden + int64_t(first + r) * model.hidden + block * WIDE + part;
                    narrow(to, rounded(numbers(to) + biased(weight, block, sums[0], r, part)));
                }
        });
    }

    // Rows of a panel lie side by side, in the same cache lines: threads share panels, or else columns.
    void normalize(Team team, const float* weight) {
        if (panels.count >= team.size)
            for (int p = team.begin(panels.count); p < team.end(panels.count); p++)
                normalize(weight, panels.start(p), panels.start(p + 1), 0, model.hidden);
        else
            normalize(weight, 0, pass.rows, team.begin(model.hidden / WIDE) * WIDE, team.end(model.hidden / WIDE) * WIDE);
        team.meet();
    }

    void normalize(const float* weight, int row, int last_row, int begin, int end) {
        for (; row < last_row; row++) {
            const bf16* from = pass.hidden + int64_t(row) * model.hidden;
            vf scale = splat(inverse_norm(from, model.hidden));
            for (int i = begin; i < end; i += LANES)
                put(space.input, model.hidden, row, i,
                    rounded(rounded(numbers(from + i) * scale) * load<vf>(weight + i)));
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
                narrow(x + i, rounded(rounded(numbers(x + i) * scale) * load<vf>(norm + i)));
        }
        const bf16 *cosine = model.cosines + position * dim, *sine = model.sines + position * dim;
        for (int i = 0; i < dim / 2; i += LANES) {
            int j = i + dim / 2;
            vf low = numbers(x + i), high = numbers(x + j);
            narrow(x + i, rounded(rounded(low * numbers(cosine + i)) - rounded(high * numbers(sine + i))));
            narrow(x + j, rounded(rounded(high * numbers(cosine + j)) + rounded(low * numbers(sine + j))));
        }
    }

    void attend(Team team, const Layer& layer, std::atomic<int>& next) {
        AttentionPlan& plan = space.attention;
        Attention attention(model, layer, pass, plan);
        int items = int(plan.items.size()) * model.kv_heads, panels = int(plan.panels.size()) * model.kv_heads;
        for (int i = next++; i < items; i = next++)
            attention.attend(plan.items[i / model.kv_heads], i % model.kv_heads, space.qkv.data(),
                             space.scratch[team.index]);
        team.meet();
        for (int i = team.begin(panels); i < team.end(panels); i++)
            attention.merge(plan.panels[i % plan.panels.size()], i / plan.panels.size(), space.places.data(), space.heads.data());
        team.meet();
    }

    // Final norm and head of the rows that want logits.
    void answer(Team team) {
        if (!pass.output_count) return;
        int hidden = model.hidden;
        Panels outputs(pass.output_count);
        if (team.index == 0) place(space.places, outputs);
        team.meet();
        for (int i = team.begin(outputs.rows); i < team.end(outputs.rows); i++) {
            const bf16* from = pass.hidden + int64_t(pass.outputs[i]) * hidden;
            bf16* to = pass.states + int64_t(i) * hidden;
            vf scale = splat(inverse_norm(from, hidden));
            for (int j = 0; j < hidden; j += LANES) {
                vf x = rounded(rounded(numbers(from + j) * scale) * load<vf>(model.final_norm + j));
                narrow(to + j, x);
                put(space.input, hidden, i, j, x);
            }
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
