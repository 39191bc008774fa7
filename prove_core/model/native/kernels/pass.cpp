// A forward pass of a decoder in one parallel region: threads share each stage's work and meet at its end.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "attention.h"
#include "team.h"
#include "walk.h"

namespace prove {

constexpr int SMALL = 4;  // rows that each thread normalizes for itself, rather than wait for the others

constexpr int MOST_PULLED = 128;  // rows: those of more leave the cache again

// What a pass needs beside the model, kept for the next one.
struct Workspace {
    Pass pass;
    Rows input, heads, inner, thin;
    std::vector<Rows> own;  // each thread's input of a small pass
    Buffer<bf16> qkv;
    AttentionPlan attention;
    std::vector<AttentionShare> shares;
    Barrier barrier;
};

class Runner {
  public:
    Runner(const Model& model, const Task& task, Workspace& space)
        : model(model), pass(space.pass), space(space), panels(task.rows) {
        pass.make(model, task);
        heads = model.query_heads + 2 * model.kv_heads;
        width = heads * model.head_dim;
        prepare();
    }

    void run(Team team) {
        if (!pass.task.products_only) space.shares[team.index].make(model, pass, space.attention, team.index, team.size);
        for (int index = 0; index < model.count; index++) run(team, index);
        answer(team);
    }

  private:
    const Model& model;
    Pass& pass;
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
        if (int(space.shares.size()) < pass.task.threads) space.shares.resize(pass.task.threads), space.own.resize(pass.task.threads);
        for (Rows& own : space.own) own.fit(std::min(rows, SMALL), model.hidden);
        space.barrier.reset();
        if (!pass.task.products_only) space.attention.make(model, pass);
    }

    void run(Team team, int index) {
        const Layer& layer = model.layers[index];
        project(team, layer, normalized(team, layer.input_norm));
        if (!pass.task.products_only) {
            AttentionShare& share = space.shares[team.index];
            Attention attention(model, layer, pass, space.attention);
            attention.expect(share, share.begin);
            if (layer.q_norm) rotate(team, layer);
            attention.attend(share, space.qkv.data(), space.heads);
            team.meet();
        }
        add_product(team, layer.o, space.heads, &layer.gate_up);
        const Rows& x = normalized(team, layer.middle_norm);
        product<2>(team, layer.gate_up, x, &layer.down, [&](int block, int first, int size, const Sums* sums) {
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
        pull(x, weight.inputs);
        int reduced = adapts ? reduce(team, weight, x) : 0;
        multiply_blocks<TOGETHER>(team, weight, x, panels, reduced, next, done);
        team.meet();
    }

    // What other threads have written comes from their cores' caches: many lines at a time.
    void pull(const Rows& x, int size) const {
        for (int r = 0; r < pass.rows && r < MOST_PULLED; r++)
            for (int i = 0; i < size / 2; i += LANES) touch(x.at(r) + i);
    }

    // `reduced`: when all threads have done their part of what an adapter adds, if it does.
    template <int TOGETHER, class Done>
    void multiply_blocks(Team team, const Weight& weight, const Rows& x, const Panels& panels,
                         int reduced, const Weight* next, Done done) {
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
                    if (!reduced || from >= size) continue;
                    team.wait(reduced);
                    adapt(weight, block, first, size, from, sums[i]);
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

    // This thread's part of t = scale * A x of placeholder rows; gives the arrival to wait for.
    int reduce(Team team, const Weight& weight, const Rows& x) {
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
        return team.arrive();
    }

    // hidden += W x
    void add_product(Team team, const Weight& weight, const Rows& x, const Weight* next) {
        product<1>(team, weight, x, next, [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++)
                for (int part = 0; part < WIDE; part += LANES) {
                    bf16* to = pass.hidden.data() + int64_t(first + r) * model.hidden + block * WIDE + part;
                    narrow(to, numbers(to) + biased(weight, block, sums[0], r, part));
                }
        });
    }

    // The rows' states, normalized: by each thread for itself, or shared among them.
    const Rows& normalized(Team team, const float* weight) {
        bool small = pass.rows <= SMALL;
        Rows& to = small ? space.own[team.index] : space.input;
        if (pass.task.products_only) return to;
        int first = small ? 0 : team.begin(pass.rows), last = small ? pass.rows : team.end(pass.rows);
        for (int row = first; row < last; row++) normalize(row, weight, to.row(row));
        if (!small) team.meet();
        return to;
    }

    void normalize(int row, const float* weight, bf16* to) const {
        const bf16* from = pass.hidden.data() + int64_t(row) * model.hidden;
        vf scale = splat(inverse_norm(from, model.hidden));
        for (int i = 0; i < model.hidden; i += LANES)
            narrow(to + i, rounded(numbers(from + i) * scale) * load<vf>(weight + i));
    }

    float inverse_norm(const bf16* x, int size) const {
        vf even = {}, odd = {};
        for (int i = 0; i < size; i += WIDE) {
            even += numbers(x + i) * numbers(x + i);
            odd += numbers(x + i + LANES) * numbers(x + i + LANES);
        }
        return 1.0f / std::sqrt(total(even + odd) / size + model.epsilon);
    }

    // Queries, keys and values. Half a block belongs to the first half of a head, the other to what is turned with it.
    void project(Team team, const Layer& layer, const Rows& x) {
        int half = model.head_dim / 2, blocks = model.head_dim / WIDE;
        product<1>(team, layer.qkv, x, &layer.o, [&](int block, int first, int size, const Sums* sums) {
            int head = block / blocks, i = block % blocks * LANES;
            for (int r = first; r < first + size; r++) {
                vf low = biased(layer.qkv, block, sums[0], r - first, 0);
                vf high = biased(layer.qkv, block, sums[0], r - first, LANES);
                bf16* to = layer.q_norm ? projected(r, head) : place(layer, r, head);
                if (!layer.q_norm && head < model.query_heads + model.kv_heads) turn(low, high, pass.positions[r], i);
                narrow(to + i, low);
                narrow(to + half + i, high);
            }
        });
    }

    bf16* projected(int row, int head) const { return &space.qkv[int64_t(row) * width + head * model.head_dim]; }

    // Where a head of a row belongs: keys and values to the cache.
    bf16* place(const Layer& layer, int row, int head) const {
        int own = head - model.query_heads;
        if (own < 0) return projected(row, head);
        bool is_value = own >= model.kv_heads;
        int64_t slot = pass.slots[row] * model.kv_heads + own - (is_value ? model.kv_heads : 0);
        return (is_value ? layer.values : layer.keys) + slot * model.head_dim;
    }

    // Numbers i .. i + 15 of a head, and those half a head behind them, to a position.
    void turn(vf& low, vf& high, int64_t position, int i) const {
        const bf16 *cosine = model.cosines + position * model.head_dim + i, *sine = model.sines + position * model.head_dim + i;
        int half = model.head_dim / 2;
        vf x = low, y = high;
        low = rounded(x * numbers(cosine)) - rounded(y * numbers(sine));
        high = rounded(y * numbers(cosine + half)) + rounded(x * numbers(sine + half));
    }

    // What `project` does where heads are normalized, which takes the whole of them, before they are turned.
    void rotate(Team team, const Layer& layer) {
        int dim = model.head_dim;
        int64_t work = int64_t(pass.rows) * heads;
        for (int item = team.begin(work); item < team.end(work); item++) {
            int row = item / heads, head = item % heads;
            bf16 *x = projected(row, head), *to = place(layer, row, head);
            if (head >= model.query_heads + model.kv_heads) {
                memcpy(to, x, dim * sizeof(bf16));
                continue;
            }
            const float* norm = head < model.query_heads ? layer.q_norm : layer.k_norm;
            vf scale = splat(inverse_norm(x, dim));
            for (int i = 0; i < dim / 2; i += LANES) {
                vf low = rounded(rounded(numbers(x + i) * scale) * load<vf>(norm + i));
                vf high = rounded(rounded(numbers(x + dim / 2 + i) * scale) * load<vf>(norm + dim / 2 + i));
                turn(low, high, pass.positions[row], i);
                narrow(to + i, low);
                narrow(to + dim / 2 + i, high);
            }
        }
        team.meet();
    }

    // Final norm and head of the rows that want logits.
    void answer(Team team) {
        if (!pass.task.output_count) return;
        int hidden = model.hidden;
        Panels outputs(pass.task.output_count);
        bool small = outputs.rows <= SMALL;
        Rows& x = small ? space.own[team.index] : space.input;
        int begin = team.begin(outputs.rows), end = team.end(outputs.rows);
        for (int i = small ? 0 : begin; i < (small ? outputs.rows : end); i++) {
            normalize(pass.outputs[i], model.final_norm, x.row(i));
            if (i >= begin && i < end) memcpy(pass.task.states + int64_t(i) * hidden, x.row(i), hidden * sizeof(bf16));
        }
        if (!small) team.meet();
        const Weight& weight = model.head;
        multiply_blocks<1>(team, weight, x, outputs, 0, nullptr,
                           [&](int block, int first, int size, const Sums* sums) {
            for (int r = 0; r < size; r++) {
                float row[WIDE];
                for (int part = 0; part < WIDE; part += LANES) store(row + part, biased(weight, block, sums[0], r, part));
                int columns = std::min(WIDE, model.vocabulary - block * WIDE);
                memcpy(pass.task.logits + int64_t(first + r) * model.vocabulary + block * WIDE, row, columns * sizeof(float));
            }
        });
        int blocks = weight.outputs / WIDE, first = team.begin(blocks) * WIDE, last = team.end(blocks) * WIDE;
        for (int i = 0; i < model.banned_count; i++)
            for (int r = 0; model.banned[i] >= first && model.banned[i] < last && r < outputs.rows; r++)
                pass.task.logits[int64_t(r) * model.vocabulary + model.banned[i]] = -INFINITY;
    }
};

}  // namespace prove

extern "C" {

// Keys of a sequence that attention adds up together.
int32_t prove_chunk() { return prove::CHUNK; }

prove::Workspace* prove_workspace() { return new prove::Workspace; }

void prove_release(prove::Workspace* space) { delete space; }

// Gives how many positions the rotary tables must hold, where they hold less: then nothing was done.
int64_t prove_pass(const prove::Model* model, const prove::Task* task, prove::Workspace* space) {
    int64_t positions = *std::max_element(task->positions, task->positions + task->rows) + 1;
    if (positions > model->positions) return positions;
    prove::Runner runner(*model, *task, *space);
#pragma omp parallel num_threads(std::min(task->threads, prove::MOST_THREADS))
    runner.run({omp_get_thread_num(), omp_get_num_threads(), space->barrier});
    return 0;
}

// Of `asked` rows of logits: the best id, unless one is given (-1: none), and that id's probability if it is weighed. And
// the probabilities of `count` pairs of a weighed row and an id.
void prove_read(const float* logits, int32_t rows, int64_t vocabulary, int32_t threads, int32_t asked, const int64_t* which,
                const int8_t* weighed, int64_t* best, float* confidences, int32_t count, const int64_t* where,
                const int64_t* ids, float* probabilities) {
    std::vector<float> most(rows), sums(rows);
    auto probability = [&](int64_t row, int64_t id) {
        return prove::exponential(prove::splat(logits[row * vocabulary + id] - most[row]))[0] / sums[row];
    };
#pragma omp parallel for num_threads(std::min(threads, asked)) schedule(dynamic)
    for (int i = 0; i < asked; i++) {
        int64_t row = which[i];
        prove::Row values{logits + row * vocabulary, vocabulary};
        prove::Best found = values.best();
        if (best[row] < 0) best[row] = found.id;
        if (!weighed[i]) continue;
        most[row] = found.logit;
        sums[row] = values.sum(found.logit);
        confidences[row] = probability(row, best[row]);
    }
    for (int i = 0; i < count; i++) probabilities[i] = probability(where[i], ids[i]);
}

// What a sequential head's B makes of each token's embedding: see `Head`.
void prove_embed(const uint32_t* b, const prove::bf16* embedding, int32_t hidden, int32_t width, int64_t vocabulary,
                 int32_t threads, prove::bf16* previous) {
    constexpr int SHARE = 1024;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < vocabulary; i += SHARE)
        prove::embed(b, embedding + i * hidden, hidden, width, int(std::min<int64_t>(SHARE, vocabulary - i)), previous + i * width);
}

int64_t prove_kept_size(int32_t width) { return prove::Walk::kept_size(width); }

void prove_walk(const prove::Head* head, const prove::Block* blocks, int32_t count, const float* logits,
                const prove::bf16* states, int32_t threads, int64_t* ids, float* probabilities, prove::Others* others) {
    prove::Walk walk(*head, blocks, count, logits, states);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int i = -1; i < walk.rows(); i++) i < 0 ? walk.fetch() : walk.prepare(i);
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (count > 1)
    for (int i = 0; i < count; i++) walk.down(i, blocks[i], ids, probabilities, others[i]);
}
}
