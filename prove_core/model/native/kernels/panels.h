// Products of a few rows with many columns, the one kernel that everything else is made of.
//
// Rows stand in panels of up to TALL, stored as [pairs of inputs][rows of the panel]; columns in blocks of WIDE, stored
// as [pairs of inputs][WIDE]. So both are read in order, once. Every sum runs over its pairs of inputs in order, whatever
// the shape of its panel: a row's bits do not depend on its company.
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

// Where a row begins in values of `pairs` pairs stored in panels, and how far its pairs are apart.
struct Place {
    int64_t start;
    int offset, stride;

    uint32_t* in(uint32_t* values, int64_t pairs) const { return values + start * pairs + offset; }
};

// Memory to fetch into the cache while a product runs: two lines at each of its steps, which are `stride` values apart.
// The CPU's own prefetching alone leaves a third of the memory's bandwidth unused.
struct Ahead {
    const uint32_t* at;
    int stride;
};

// sums[R][V * LANES] += x[pairs][R] * w[pairs][V * LANES]. In x a row's pairs are `stride` values apart, as in panels; or
// with APART they are neighbours, and APART is how far rows are from each other.
template <int R, int V, int APART>
static void multiply(const uint32_t* x, int stride, const uint32_t* w, int pairs, float* sums, Ahead ahead) {
    vf total[R][V];
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) total[r][v] = load<vf>(sums + (r * V + v) * LANES);
    for (int k = 0; k < pairs; k++, w += V * LANES, x += APART ? 1 : stride) {
        vu weights[V];
        for (int v = 0; v < V; v++) weights[v] = load<vu>(w + v * LANES);
        __builtin_prefetch(ahead.at, 0, 2);
        __builtin_prefetch(ahead.at + LANES, 0, 2);
        ahead.at += ahead.stride;
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
            vu input = splat_pair(x[APART ? r * APART : r]);
            for (int v = 0; v < V; v++) total[r][v] = dot(total[r][v], input, weights[v]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) store(sums + (r * V + v) * LANES, total[r][v]);
}

using Multiply = void (*)(const uint32_t*, int, const uint32_t*, int, float*, Ahead);

template <int V, int APART>
struct Products {
    static constexpr Multiply OF[TALL + 1] = {
        nullptr,
        multiply<1, V, APART>, multiply<2, V, APART>, multiply<3, V, APART>, multiply<4, V, APART>,
        multiply<5, V, APART>, multiply<6, V, APART>, multiply<7, V, APART>, multiply<8, V, APART>,
        multiply<9, V, APART>, multiply<10, V, APART>, multiply<11, V, APART>, multiply<12, V, APART>,
    };
};

constexpr int APART = 128;  // pairs: room for a head's numbers, and for a chunk of keys

// Panels with blocks of WIDE columns, panels with narrow ones of LANES, and rows APART with blocks of WIDE.
static constexpr const Multiply* MULTIPLY = Products<2, 0>::OF;
static constexpr const Multiply* MULTIPLY_NARROW = Products<1, 0>::OF;
static constexpr const Multiply* MULTIPLY_ROWS = Products<2, APART>::OF;

}  // namespace prove
