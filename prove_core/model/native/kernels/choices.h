// What rows of logits say: the best id of each, probabilities, and the leading candidates.
#pragma once
#include <algorithm>
#include <cmath>

#include "vec.h"

namespace prove {

struct Best {
    int64_t id;
    float logit;
};

struct Row {
    static constexpr int CHUNK = 16 * LANES;  // what is looked at again only if its largest value asks for it

    const float* logits;
    int64_t size;

    // Sixteen values, or a shorter rest filled up with -inf.
    vf at(int64_t i) const {
        if (i + LANES <= size) return load<vf>(logits + i);
        float rest[LANES];
        std::fill(rest, rest + LANES, -INFINITY);
        std::copy(logits + i, logits + size, rest);
        return load<vf>(rest);
    }

    // The first of the largest values; an id beyond the row where it has none but NaN.
    Best best() const {
        float most = -INFINITY;
        int64_t chunk = 0;
        for (int64_t i = 0; i < size; i += CHUNK) {
            vf top = this->top(i);
            if (lanes(top > most)) most = largest(top), chunk = i;
        }
        for (int64_t i = chunk; i < size; i += LANES)
            if (uint32_t found = lanes(at(i) == most)) return {i + __builtin_ctz(found), most};
        return {size, most};
    }

    // Of e ^ (logit - most).
    float sum(float most) const {
        vf sum = {};
        for (int64_t i = 0; i < size; i += LANES) sum += exponential(at(i) - most);
        return total(sum);
    }

    // The largest of the values of a chunk from `begin` on that are as many lanes apart.
    vf top(int64_t begin) const {
        vf most[2] = {splat(-INFINITY), splat(-INFINITY)};  // they need not wait for each other
        if (begin + CHUNK <= size) {
#pragma GCC unroll 8
            for (int i = 0; i < CHUNK; i += 2 * LANES)
                for (int part = 0; part < 2; part++)
                    most[part] = larger(load<vf>(logits + begin + i + part * LANES), most[part]);
        } else
            for (int64_t i = begin; i < size; i += LANES) most[0] = larger(at(i), most[0]);
        return larger(most[0], most[1]);
    }
};

constexpr int CANDIDATES = 2 * LANES;
constexpr vi NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// The CANDIDATES largest of a row, in no order, and their ids; all of a shorter row. Of equal ones the first count.
class Leading {
  public:
    alignas(64) float values[CANDIDATES];
    int64_t ids[CANDIDATES];
    int count;

    void find(const Row& row) {
        count = int(std::min<int64_t>(CANDIDATES, row.size));
        for (int i = 0; i < count; i++) values[i] = row.logits[i], ids[i] = i;
        if (count == row.size) return;
        Held held{load<vf>(values), load<vf>(values + LANES)};
        int least = held.least();
        for (int64_t chunk = count; chunk < row.size; chunk += Row::CHUNK) {
            if (!lanes(row.top(chunk) > values[least])) continue;
            for (int64_t i = chunk; i < std::min(chunk + Row::CHUNK, row.size); i += LANES)
                for (uint32_t more = lanes(row.at(i) > values[least]); more; more &= more - 1) {
                    int64_t id = i + __builtin_ctz(more);
                    if (!(row.logits[id] > values[least])) continue;
                    values[least] = row.logits[id];
                    ids[least] = id;
                    held.put(least, row.logits[id]);
                    least = held.least();
                }
        }
    }

  private:
    // The values in registers: memory just written in parts is slow to read as a whole.
    struct Held {
        vf low, high;

        void put(int place, float value) {
            low = select(NUMBERS == place, splat(value), low);
            high = select(NUMBERS + LANES == place, splat(value), high);
        }

        int least() const {
            float value = -largest(larger(-low, -high));
            return __builtin_ctz(lanes(low == value) | lanes(high == value) << LANES);
        }
    };
};

}  // namespace prove
