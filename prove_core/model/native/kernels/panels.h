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

constexpr int NEAR = 128 * LANES;  // how far ahead weights that are read once are fetched: it fits the nearest cache

// sums[R][V * LANES] = x[R][pairs] * w[pairs][V * LANES], or += to GO ON. Rows of x are `stride` pairs apart; or it is
// stored ACROSS, as x[pairs][stride].
template <int R, int V, bool ACROSS, bool GO_ON>
static void multiply(const uint32_t* x, int64_t stride, const uint32_t* w, int pairs, float* sums, Ahead ahead) {
    vf total[R][V];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) total[r][v] = GO_ON ? load<vf>(sums + (r * V + v) * LANES) : vf{};
    for (int k = 0; k < pairs; k++, w += V * LANES, x += ACROSS ? stride : 1) {
        vu weights[V];
        for (int v = 0; v < V; v++) weights[v] = load<vu>(w + v * LANES);
        __builtin_prefetch(ahead.at, 0, 3);
        __builtin_prefetch(ahead.at + LANES, 0, 3);
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

template <int V, bool ACROSS, bool GO_ON = false>
struct Products {
    template <int R>
    static constexpr Multiply WITH = multiply<R, V, ACROSS, GO_ON>;
    static constexpr Multiply OF[TALL + 1] = {
        nullptr, WITH<1>, WITH<2>, WITH<3>, WITH<4>, WITH<5>, WITH<6>, WITH<7>, WITH<8>, WITH<9>, WITH<10>, WITH<11>, WITH<12>,
    };
};

// With blocks of WIDE columns, going on with sums, with narrow blocks of LANES, and of rows stored ACROSS.
static constexpr const Multiply* MULTIPLY = Products<2, false>::OF;
static constexpr const Multiply* MULTIPLY_ON = Products<2, false, true>::OF;
static constexpr const Multiply* MULTIPLY_NARROW = Products<1, false>::OF;
static constexpr const Multiply* MULTIPLY_ACROSS = Products<2, true>::OF;

}  // namespace prove
