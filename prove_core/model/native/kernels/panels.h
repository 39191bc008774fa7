// Products of a few rows with many columns, the one kernel that everything else is made of.
//
// Rows are multiplied in panels of up to TALL, columns in blocks of WIDE stored as [pairs of inputs][WIDE], which are
// read in order, once. Every sum runs over its pairs of inputs in order, whatever the shape of its panel: a row's bits do
// not depend on its company.
#pragma once
#include "vec.h"

namespace prove {

constexpr int TALL = 12;  // accumulators for it and the weights fill the registers
constexpr int WIDE = 2 * LANES;

// Rows of a pass cut into panels of about one size.
struct Panels {
    int rows, count;

    explicit Panels(int rows) : rows(rows), count((rows + TALL - 1) / TALL) {}
    int start(int panel) const { return int(int64_t(rows) * panel / count); }
    int size(int panel) const { return start(panel + 1) - start(panel); }
};

// Rows of numbers, as pairs, that a product reads. They begin in lines of their own, and not all in the same place of the
// cache: `stride` is no multiple of a page.
struct Rows {
    Buffer<uint32_t> pairs;
    int stride = 0;  // pairs

    void fit(int rows, int size) {
        stride = (size / 2 + LANES - 1) / LANES * LANES;
        if (stride / LANES % 4 == 0) stride += LANES;
        if (pairs.size() < size_t(rows) * stride) pairs.resize(size_t(rows) * stride);
    }
    const uint32_t* at(int row) const { return pairs.data() + int64_t(row) * stride; }
    bf16* row(int row) { return (bf16*)(pairs.data() + int64_t(row) * stride); }
};

// Memory to fetch into the cache while a product runs: two lines at each of its steps, which are `stride` values apart.
// The CPU's own prefetching alone leaves a third of the memory's bandwidth unused.
struct Ahead {
    const uint32_t* at;
    int stride;
};

// sums[R][V * LANES] += x[R][pairs] * w[pairs][V * LANES]. Rows of x are `stride` pairs apart; or it is stored ACROSS, as
// x[pairs][stride].
template <int R, int V, bool ACROSS>
static void multiply(const uint32_t* x, int64_t stride, const uint32_t* w, int pairs, float* sums, Ahead ahead) {
    vf total[R][V];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) total[r][v] = load<vf>(sums + (r * V + v) * LANES);
    for (int k = 0; k < pairs; k++, w += V * LANES, x += ACROSS ? stride : 1) {
        vu weights[V];
        for (int v = 0; v < V; v++) weights[v] = load<vu>(w + v * LANES);
        __builtin_prefetch(ahead.at, 0, 2);
        __builtin_prefetch(ahead.at + LANES, 0, 2);
        ahead.at += ahead.stride;
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            vu input = splat_pair(x[ACROSS ? r : r * stride]);
            for (int v = 0; v < V; v++) total[r][v] = dot(total[r][v], input, weights[v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(sums + (r * V + v) * LANES, total[r][v]);
}

using Multiply = void (*)(const uint32_t*, int64_t, const uint32_t*, int, float*, Ahead);

template <int V, bool ACROSS>
struct Products {
    static constexpr Multiply OF[TALL + 1] = {
        nullptr,
        multiply<1, V, ACROSS>, multiply<2, V, ACROSS>, multiply<3, V, ACROSS>, multiply<4, V, ACROSS>,
        multiply<5, V, ACROSS>, multiply<6, V, ACROSS>, multiply<7, V, ACROSS>, multiply<8, V, ACROSS>,
        multiply<9, V, ACROSS>, multiply<10, V, ACROSS>, multiply<11, V, ACROSS>, multiply<12, V, ACROSS>,
    };
};

// With blocks of WIDE columns, with narrow ones of LANES, and of rows stored ACROSS.
static constexpr const Multiply* MULTIPLY = Products<2, false>::OF;
static constexpr const Multiply* MULTIPLY_NARROW = Products<1, false>::OF;
static constexpr const Multiply* MULTIPLY_ACROSS = Products<2, true>::OF;

}  // namespace prove
