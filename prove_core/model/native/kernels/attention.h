// Attention over paged KV, in items that threads take one after another: the queries of a window that share a key head,
// and CHUNK keys. What an item says of a query (its largest score, the sum of its weights, and the weighted values) waits
// for those of the other chunks. Chunks are counted from the sequence's start, and keys that a row does not see weigh
// exactly nothing: what comes out for a row does not depend on the rows beside it.
#pragma once
#include <cmath>
#include <vector>

#include "interface.h"

namespace prove {

constexpr int CHUNK = 128;
constexpr int SHARING = 16;  // panels of queries for which keys and values are laid out once

// Queries `first ..` of a window, counted row by row, then head by head; `partials`: where what is known of them begins.
struct Queries {
    int window, first, count, chunks;
    int64_t partials;
};

struct Item {
    int chunk, from, to;  // panels of queries, of one window
};

struct AttentionPlan {
    std::vector<Queries> panels;
    std::vector<Item> items;
    Buffer<float> partials;

    void make(const Model& model, const Pass& pass) {
        panels.clear();
        items.clear();
        int per_kv = model.query_heads / model.kv_heads;
        int64_t size = 0;
        for (int w = 0; w < pass.window_count; w++) {
            int rows = pass.windows[w + 1] - pass.windows[w];
            if (!rows) continue;
            int chunks = (pass.seen[pass.windows[w + 1] - 1] + CHUNK - 1) / CHUNK;
            Panels queries(rows * per_kv);
            int begin = int(panels.size());
            for (int p = 0; p < queries.count; p++) {
                panels.push_back({w, queries.start(p), queries.size(p), chunks, size});
                size += int64_t(chunks) * model.kv_heads * partial(model);
            }
            for (int c = 0; c < chunks; c++)
                for (int from = begin; from < int(panels.size()); from += SHARING)
                    items.push_back({c, from, std::min(from + SHARING, int(panels.size()))});
        }
        if (partials.size() < size_t(size)) partials.resize(size);
    }

    static int64_t partial(const Model& model) { return 2 * LANES + TALL * model.head_dim; }

    // Of one panel, key head and chunk: most[LANES], sum[LANES], then values [head_dim / WIDE][queries][WIDE].
    float* at(const Model& model, const Queries& queries, int kv_head, int chunk) {
        return &partials[queries.partials + (int64_t(kv_head) * queries.chunks + chunk) * partial(model)];
    }
};

// A thread's memory for it, kept from pass to pass.
struct AttentionScratch {
    Buffer<uint32_t> queries, keys, values;

    void fit(int dim) {
        queries.resize(size_t(TALL) * APART);
        keys.resize(size_t(CHUNK) * dim / 2);
        values.resize(size_t(CHUNK) * dim / 2);
    }
};

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

// What each query of a panel sees: keys low .. high - 1, less those from gap_begin to gap_end - 1.
struct Sight {
    int begin, end;  // of all together
    int low[TALL], high[TALL], gap_begin[TALL], gap_end[TALL];

    Sight(const Pass& pass, const Queries& queries, int per_kv, int window) : begin(INT32_MAX), end(0) {
        for (int q = 0; q < queries.count; q++) {
            int row = pass.windows[queries.window] + (queries.first + q) / per_kv;
            high[q] = pass.seen[row];
            gap_begin[q] = pass.gap_begin[row];
            gap_end[q] = pass.gap_end[row];
            int nearest = high[q] - (gap_end[q] - gap_begin[q]);  // gaps are no distance
            low[q] = window ? std::max(0, nearest - window) : 0;
            begin = std::min(begin, low[q]);
            end = std::max(end, high[q]);
        }
    }

    vf masked(int q, int key, vf scores) const {
        bool inside = key >= low[q] && key + LANES <= high[q];
        if (inside && (key + LANES <= gap_begin[q] || key >= gap_end[q])) return scores;
        vi keys = vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + key;
        vi sees = (keys >= low[q]) & (keys < high[q]) & ~((keys >= gap_begin[q]) & (keys < gap_end[q]));
        return select(sees, scores, splat(-INFINITY));
    }
};

class Attention {
  public:
    Attention(const Model& model, const Layer& layer, const Pass& pass, AttentionPlan& plan)
        : model(model), layer(layer), pass(pass), plan(plan) {
        per_kv = model.query_heads / model.kv_heads;
        dim = model.head_dim;
    }

    // One item of one key head; `qkv` are the rows' projections side by side.
    void attend(const Item& item, int kv_head, const bf16* qkv, AttentionScratch& scratch) const {
        scratch.fit(dim);
        int first = item.chunk * CHUNK, laid = 0;
        for (int p = item.from; p < item.to; p++) {
            const Queries& queries = plan.panels[p];
            Sight sight(pass, queries, per_kv, layer.window);
            int end = std::min(first + CHUNK, sight.end);
            float* partial = plan.at(model, queries, kv_head, item.chunk);
            if (sight.begin >= first + CHUNK || end <= first) {
                std::fill(partial, partial + TALL, -INFINITY);
                continue;
            }
            if (!laid) {
                laid = std::min(CHUNK, pass.seen[pass.windows[queries.window + 1] - 1] - first);
                lay_out(queries.window, kv_head, first, laid, scratch);
            }
            for (int q = 0; q < queries.count; q++) {
                int64_t row = int64_t(row_of(queries, q)) * (model.query_heads + 2 * model.kv_heads);
                memcpy(&scratch.queries[q * APART], qkv + (row + head_of(queries, kv_head, q)) * dim, dim * sizeof(bf16));
            }
            combine(queries, sight, first, (end - first + WIDE - 1) / WIDE, scratch, partial);
        }
    }

    // What the chunks say of a panel together, into `out`: values of all heads in panels of rows.
    void merge(const Queries& queries, int kv_head, const Place* places, uint32_t* out) const {
        for (int q = 0; q < queries.count; q++) {
            float most = -INFINITY, sum = 0.0f;
            for (int c = 0; c < queries.chunks; c++)
                most = std::max(most, plan.at(model, queries, kv_head, c)[q]);
            vf values[8 * WIDE / LANES] = {};
            for (int c = 0; c < queries.chunks; c++) {
                const float* partial = plan.at(model, queries, kv_head, c);
                if (partial[q] == -INFINITY) continue;
                float factor = exponential(splat(partial[q] - most))[0];
                sum += partial[LANES + q] * factor;
                for (int d = 0; d < dim; d += LANES)
                    values[d / LANES] += load<vf>(partial + 2 * LANES + (d / WIDE * queries.count + q) * WIDE + d % WIDE) * factor;
            }
            const Place& place = places[row_of(queries, q)];
            uint32_t* to = place.in(out, int64_t(model.query_heads) * dim / 2) +
                           int64_t(head_of(queries, kv_head, q)) * dim / 2 * place.stride;
            for (int d = 0; d < dim; d += LANES) {
                bf16 numbers[LANES];
                narrow(numbers, rounded(values[d / LANES] / sum));
                for (int i = 0; i < LANES; i += 2) to[(d + i) / 2 * place.stride] = load<uint32_t>(numbers + i);
            }
        }
    }

  private:
    const Model& model;
    const Layer& layer;
    const Pass& pass;
    AttentionPlan& plan;
    int per_kv, dim;

    int row_of(const Queries& queries, int q) const {
        return pass.row_at[pass.windows[queries.window] + (queries.first + q) / per_kv];
    }

    int head_of(const Queries& queries, int kv_head, int q) const {
        return kv_head * per_kv + (queries.first + q) % per_kv;
    }

    // Keys as blocks of inputs [dim / 2][WIDE keys], values as blocks of outputs [WIDE / 2 pairs of keys][WIDE numbers].
    // Those behind the last of `count` repeat it: finite, and of no weight.
    void lay_out(int window, int kv_head, int first, int count, AttentionScratch& scratch) const {
        const bf16 *keys[CHUNK], *values[CHUNK];
        const int32_t* table = pass.page_table + pass.pages[window];
        int page = first / model.page_size, inside = first % model.page_size;
        for (int i = 0; i < CHUNK; i++) {
            if (i < count) {
                int64_t place = (int64_t(table[page]) * model.page_size + inside) * model.kv_heads + kv_head;
                keys[i] = layer.keys + place * dim;
                values[i] = layer.values + place * dim;
                if (++inside == model.page_size) page++, inside = 0;
            } else {
                keys[i] = keys[count - 1];
                values[i] = values[count - 1];
            }
        }
        fetch(keys, count);
        fetch(values, count);
        for (int key = 0; key < count; key += WIDE) {
            for (int part = key; part < key + WIDE; part += LANES)
                for (int i = 0; i < dim / 2; i += LANES)
                    transpose((const uint32_t* const*)keys + part, i,
                              scratch.keys.data() + (key / WIDE * dim / 2 + i) * WIDE + part - key, WIDE);
        }
        for (int key = 0; key < count; key += WIDE)
            for (int i = key; i < key + WIDE; i += 2)
                for (int d = 0; d < dim; d += LANES) {
                    vu low = (vu)numbers(values[i] + d), high = (vu)numbers(values[i + 1] + d);
                    int64_t block = key / WIDE * (dim / WIDE) + d / WIDE;
                    store(scratch.values.data() + (block * WIDE / 2 + (i - key) / 2) * WIDE + d % WIDE, high | low >> 16);
                }
    }

    // Rows of one head do not follow each other in memory: the CPU would not guess the next one.
    void fetch(const bf16* const* rows, int count) const {
        for (int i = 0; i < count; i++)
            for (int d = 0; d < dim; d += 64 / int(sizeof(bf16))) __builtin_prefetch(rows[i] + d);
    }

    void combine(const Queries& queries, const Sight& sight, int first, int tiles, AttentionScratch& scratch,
                 float* partial) const {
        int count = queries.count;
        alignas(64) float scores[CHUNK / WIDE][TALL * WIDE];
        for (int t = 0; t < tiles; t++) {
            memset(scores[t], 0, count * WIDE * sizeof(float));
            MULTIPLY_ROWS[count](scratch.queries.data(), 0, scratch.keys.data() + t * dim / 2 * WIDE, dim / 2, scores[t], {});
        }
        alignas(64) uint32_t weights[TALL * APART];
        for (int q = 0; q < count; q++) {
            vf most = splat(-INFINITY);
            for (int key = 0; key < tiles * WIDE; key += LANES) {
                float* at = scores[key / WIDE] + q * WIDE + key % WIDE;
                vf s = sight.masked(q, first + key, load<vf>(at) * layer.scaling);
                store(at, s);
                most = select(s > most, s, most);
            }
            partial[q] = largest(most);
            float zero = partial[q] == -INFINITY ? 0.0f : partial[q];
            vf sum = {};
            for (int key = 0; key < tiles * WIDE; key += LANES) {
                vf weight = exponential(load<vf>(scores[key / WIDE] + q * WIDE + key % WIDE) - zero);
                sum += weight;
                narrow((bf16*)&weights[q * APART + key / 2], rounded(weight));
            }
            partial[LANES + q] = total(sum);
        }
        float* values = partial + 2 * LANES;
        memset(values, 0, count * dim * sizeof(float));
        for (int t = 0; t < tiles; t++)
            for (int d = 0; d < dim; d += WIDE)
                MULTIPLY_ROWS[count](weights + t * WIDE / 2, 0,
                                     scratch.values.data() + (t * (dim / WIDE) + d / WIDE) * WIDE / 2 * WIDE, WIDE / 2,
                                     values + d * count, {});
    }
};

}  // namespace prove
