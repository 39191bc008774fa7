// Attention over paged KV, in items that threads take one after another: CHUNK keys of one head, and panels of the
// window's queries that share it. Queries stand in lanes: keys are read where they lie, and the softmax runs down keys.
// What an item says of a query (its largest score, the sum of its weights, and the weighted values) waits for those of
// the other chunks. Chunks are counted from the sequence's start, and keys that a row does not see weigh exactly nothing:
// what comes out for a row does not depend on the rows beside it.
#pragma once
#include <optional>

#include "attention_plan.h"

namespace prove {

#ifdef __AVX512F__
// to[column][stride] = from[row][column], 16 x 16
static inline void transpose(const uint32_t* const* from, int column, uint32_t* to, int stride) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(from[i] + column);
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
            a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_si512(to + (i + 0) * stride, _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_si512(to + (i + 8) * stride, _mm512_shuffle_i32x4(b[i], b[i + 8], 0xdd));
        _mm512_storeu_si512(to + (i + 4) * stride, _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_si512(to + (i + 12) * stride, _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0xdd));
    }
}
#else
static inline void transpose(const uint32_t* const* from, int column, uint32_t* to, int stride) {
    for (int row = 0; row < 16; row++)
        for (int i = 0; i < 16; i++) to[i * stride + row] = from[row][column + i];
}
#endif

class Attention {
  public:
    Attention(const Model& model, const Layer& layer, const Pass& pass, AttentionPlan& plan)
        : model(model), layer(layer), pass(pass), plan(plan) {
        per_kv = model.query_heads / model.kv_heads;
        dim = model.head_dim;
    }

    // A thread's share, and what is complete then into `out`; `qkv` are the rows' projections side by side.
    void attend(AttentionShare& share, const bf16* qkv, Rows& out) const {
        for (int i = share.begin; i < share.end; i++) {
            const int* start = &share.starts[i - share.begin];
            expect(share, i + 1);
            attend(plan.items[i], &share.keys[start[0]], start[1] - start[0], qkv, out, share);
        }
    }

    // Starts to fetch the keys and values of an item.
    void expect(const AttentionShare& share, int item) const {
        if (item >= share.end || beyond(plan.items[item])) return;
        for (int i = share.starts[item - share.begin]; i < share.starts[item - share.begin + 1]; i++)
            for (int d = 0; d < dim; d += 2 * LANES) {
                prove::expect(layer.keys + int64_t(share.keys[i]) * dim + d);
                prove::expect(layer.values + int64_t(share.keys[i]) * dim + d);
            }
    }

  private:
    const Model& model;
    const Layer& layer;
    const Pass& pass;
    AttentionPlan& plan;
    int per_kv, dim;

    // Whether a sliding window has left all keys of an item behind.
    bool beyond(const Item& item) const {
        int row = pass.task.windows[plan.panels[item.from].window] + plan.panels[item.from].first / per_kv;
        int nearest = pass.seen[row] - (pass.gap_end[row] - pass.gap_begin[row]);
        return layer.window && nearest - layer.window >= (item.chunk + 1) * CHUNK;
    }

    // Into the CPU's cache, many lines at a time: it would not guess the next row of a head, and it drops prefetches.
    void fetch(const int32_t* keys, int count) const {
        for (const bf16* from : {layer.keys, layer.values})
            for (int i = 0; i < count; i++)
                for (int d = 0; d < dim; d += 2 * LANES) touch(from + int64_t(keys[i]) * dim + d);
    }

    // The `count` keys of an item are at `keys`.
    void attend(const Item& item, const int32_t* keys, int count, const bf16* qkv, Rows& out,
                AttentionShare& share) const {
        int first = item.chunk * CHUNK, kv_head = item.kv_head;
        bool laid = false;
        for (int p = item.from; p < item.to; p++) {
            const Queries& queries = plan.panels[p];
            std::optional<Sight> own;
            if (layer.window != model.layers->window) own.emplace(pass, queries, per_kv, layer.window);
            const Sight& sight = own ? *own : plan.sights[p];
            int begin = std::max(first, sight.begin & ~1) - first, end = std::min(first + CHUNK, sight.end) - first;
            float* partial = plan.at(model, queries, kv_head, item.chunk);
            if (begin < end) {
                if (!laid) {
                    fetch(keys, count);
                    lay_out_values(keys, count, share);
                    laid = true;
                }
                bool wide = queries.count > LANES;
                lay_out_queries(queries, kv_head, qkv, wide ? WIDE : LANES, share);
                if (wide)
                    combine<2>(queries, sight, first, begin, end, keys, share, partial);
                else
                    combine<1>(queries, sight, first, begin, end, keys, share, partial);
            } else {
                std::fill(partial, partial + WIDE, -INFINITY);
            }
            if (plan.complete(model, p, kv_head)) merge(queries, kv_head, out, share);
        }
    }

    // What the chunks say of a panel together.
    void merge(const Queries& queries, int kv_head, Rows& out, AttentionShare& share) const {
        vf most[2] = {splat(-INFINITY), splat(-INFINITY)}, sum[2] = {};
        for (int c = 0; c < queries.chunks; c++)
            for (int v = 0; v < 2; v++) {
                vf here = load<vf>(plan.at(model, queries, kv_head, c) + v * LANES);
                most[v] = select(here > most[v], here, most[v]);
            }
        share.factors.resize(size_t(queries.chunks + 1) * WIDE);
        float *factors = share.factors.data(), *scales = factors + queries.chunks * WIDE;
        for (int c = 0; c < queries.chunks; c++)
            for (int v = 0; v < 2; v++) {
                const float* partial = plan.at(model, queries, kv_head, c) + v * LANES;
                vf factor = exponential(load<vf>(partial) - most[v]);
                sum[v] += load<vf>(partial + WIDE) * factor;
                store(factors + c * WIDE + v * LANES, factor);
            }
        for (int v = 0; v < 2; v++) store(scales + v * LANES, 1.0f / sum[v]);
        const float* values = plan.at(model, queries, kv_head, 0) + 2 * WIDE;
        int64_t apart = plan.partial(model);
        int row = pass.task.windows[queries.window] + queries.first / per_kv, head = queries.first % per_kv;
        for (int q = 0; q < queries.count; q++) {
            bf16* to = out.row(pass.row_at[row]) + (kv_head * per_kv + head) * dim;
            if (++head == per_kv) row++, head = 0;
            for (int d = 0; d < dim; d += WIDE) {
                vf low = {}, high = {};
                for (int c = 0; c < queries.chunks; c++) {
                    float factor = factors[c * WIDE + q];
                    if (factor == 0.0f) continue;  // of what it does not see nothing may have been written
                    const float* part = values + c * apart + (d / WIDE * queries.count + q) * WIDE;
                    low += load<vf>(part) * factor;
                    high += load<vf>(part + LANES) * factor;
                }
                narrow(to + d, low * scales[q]);
                narrow(to + d + LANES, high * scales[q]);
            }
        }
    }

    // As blocks [dim / WIDE][pairs of keys][WIDE]. What the last key is paired with is of no weight.
    void lay_out_values(const int32_t* keys, int count, AttentionShare& share) const {
        for (int i = 0; i < count; i += 2) {
            const bf16* low = layer.values + int64_t(keys[i]) * dim;
            const bf16* high = layer.values + int64_t(keys[std::min(i + 1, count - 1)]) * dim;
            for (int d = 0; d < dim; d += LANES)
                store(share.values.data() + (d / WIDE * CHUNK / 2 + i / 2) * WIDE + d % WIDE,
                      (vu)numbers(high + d) | (vu)numbers(low + d) >> 16);
        }
    }

    // As [dim / 2][lanes].
    void lay_out_queries(const Queries& queries, int kv_head, const bf16* qkv, int lanes, AttentionShare& share) const {
        const uint32_t* rows[WIDE];
        int row = pass.task.windows[queries.window] + queries.first / per_kv, head = queries.first % per_kv;
        for (int q = 0; q < lanes; q++) {
            int64_t at = int64_t(pass.row_at[row]) * (model.query_heads + 2 * model.kv_heads) + kv_head * per_kv + head;
            rows[q] = (const uint32_t*)(qkv + at * dim);
            if (q + 1 < queries.count && ++head == per_kv) row++, head = 0;
        }
        for (int lane = 0; lane < lanes; lane += LANES)
            for (int i = 0; i < dim / 2; i += LANES)
                transpose(rows + lane, i, share.queries.data() + i * lanes + lane, lanes);
    }

    // Keys begin .. end - 1 of the chunk that begins at `first`.
    template <int V>
    void combine(const Queries& queries, const Sight& sight, int first, int begin, int end, const int32_t* keys,
                 AttentionShare& share, float* partial) const {
        score<V>(begin, end, keys, share);
        weigh<V>(sight, first, begin, end, share, partial);
        int count = queries.count, pairs = (end - begin + 1) / 2;
        float* values = partial + 2 * WIDE;
        Panels panels(count);
        for (int p = 0; p < panels.count; p++)
            for (int d = 0; d < dim; d += WIDE) {
                const uint32_t* laid = share.values.data() + (d / WIDE * CHUNK + begin) / 2 * WIDE;
                MULTIPLY_ACROSS[panels.size(p)](share.weights.data() + begin / 2 * V * LANES + panels.start(p), V * LANES,
                                                laid, pairs, values + (d / WIDE * count + panels.start(p)) * WIDE, {laid, 0});
            }
    }

    // scores [keys][lanes]
    template <int V>
    void score(int begin, int end, const int32_t* keys, AttentionShare& share) const {
        for (int key = begin; key < end;) {
            int next = key + 1;
            while (next < end && next < key + TALL && keys[next] == keys[next - 1] + model.kv_heads) next++;
            const bf16* from = layer.keys + int64_t(keys[key]) * dim;
            Products<V, false>::OF[next - key]((const uint32_t*)from, model.kv_heads * dim / 2, share.queries.data(), dim / 2,
                                               share.scores.data() + key * V * LANES, {share.queries.data(), 0});
            key = next;
        }
    }

    // Scores to weights [pairs of keys][lanes], with the largest score of each lane and the sum of its weights.
    template <int V>
    void weigh(const Sight& sight, int first, int begin, int end, AttentionShare& share, float* partial) const {
        vf most[V], sum[V] = {};
        for (int v = 0; v < V; v++) most[v] = splat(-INFINITY);
        for (int key = begin; key < end; key++) {
            bool whole = sight.whole(first + key);
            for (int v = 0; v < V; v++) {
                float* at = share.scores.data() + (key * V + v) * LANES;
                vf s = load<vf>(at) * layer.scaling;
                if (!whole) s = sight.masked(first + key, v * LANES, s);
                store(at, s);
                most[v] = select(s > most[v], s, most[v]);
            }
        }
        for (int v = 0; v < 2; v++) store(partial + v * LANES, v < V ? most[v] : splat(-INFINITY));
        for (int v = 0; v < V; v++) most[v] = select(most[v] > -INFINITY, most[v], vf{});
        for (int key = begin; key < end; key += 2)
            for (int v = 0; v < V; v++) {
                const float* at = share.scores.data() + (key * V + v) * LANES;
                vf low = exponential(load<vf>(at) - most[v]);
                vf high = key + 1 < end ? exponential(load<vf>(at + V * LANES) - most[v]) : vf{};
                sum[v] += low;
                sum[v] += high;
                store(share.weights.data() + (key / 2 * V + v) * LANES, (vu)rounded(high) | (vu)rounded(low) >> 16);
            }
        for (int v = 0; v < 2; v++) store(partial + WIDE + v * LANES, v < V ? sum[v] : vf{});
    }
};

}  // namespace prove
