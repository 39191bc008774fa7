// What rows of logits say: the best id of each, probabilities, and the leading candidates.
#pragma once
#include <algorithm>
#include <cmath>

#include "vec.h"

namespace prove {

struct Row {
    const float* logits;
    int64_t size;

    // `step` of every sixteen, and of a shorter rest filled up with -inf, as (values, place).
    template <class Step>
    void each(Step step) const {
        int64_t i = 0;
        for (; i + LANES <= size; i += LANES) step(load<vf>(logits + i), i);
        if (i == size) return;
        float rest[LANES];
        std::fill(rest, rest + LANES, -INFINITY);
        std::copy(logits + i, logits + size, rest);
        step(load<vf>(rest), i);
    }

    float most() const {
        vf most = splat(-INFINITY);
        each([&](vf x, int64_t) { most = select(x > most, x, most); });
        return largest(most);
    }

    int64_t first(float value) const {
        for (int64_t i = 0; i + LANES <= size; i += LANES)
            if (any(load<vf>(logits + i) == value)) return std::find(logits + i, logits + i + LANES, value) - logits;
        return std::find(logits + size / LANES * LANES, logits + size, value) - logits;
    }

    // Of e ^ (logit - most).
    float sum(float most) const {
        vf sum = {};
        each([&](vf x, int64_t) { sum += exponential(x - most); });
        return total(sum);
    }
};

// The `count` largest of a row, in no order, and their ids. Of equal ones the first count.
static void leading(const Row& row, int count, float* values, int64_t* ids) {
    int known = 0, least = 0;
    row.each([&](vf x, int64_t place) {
        if (known == count && !any(x > values[least])) return;
        for (int i = 0; i < LANES && place + i < row.size; i++) {
            if (known == count && !(x[i] > values[least])) continue;
            int slot = known < count ? known++ : least;
            values[slot] = x[i];
            ids[slot] = place + i;
            if (known == count) least = int(std::min_element(values, values + count) - values);
        }
    });
}

}  // namespace prove
