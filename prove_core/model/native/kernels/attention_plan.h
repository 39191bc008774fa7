// How attention is cut into items of work, and shared among threads: see `attention.h`.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "arrange.h"

namespace prove {

constexpr int CHUNK = 128;
constexpr int SHARING = 4;  // panels of queries for which values are laid out once

// Queries `first ..` of a window, counted row by row, then head by head; `partials`: where what is known of them begins.
struct Queries {
    int window, first, count, chunks;
    int64_t partials;
};

// What each query of a panel sees: keys low .. high - 1, less those from gap_begin to gap_end - 1.
struct Sight {
    int begin, end;                             // of all together
    int every_low, every_high, no_gap, gapped;  // all see every_low .. every_high - 1, but no_gap .. gapped - 1
    alignas(64) int32_t low[WIDE], high[WIDE], gap_begin[WIDE], gap_end[WIDE];

    Sight(const Pass& pass, const Queries& queries, int per_kv, int window)
        : begin(INT32_MAX), end(0), every_low(0), every_high(INT32_MAX), no_gap(INT32_MAX), gapped(0) {
        for (int q = 0; q < queries.count; q++) {
            int row = pass.task.windows[queries.window] + (queries.first + q) / per_kv;
            high[q] = pass.seen[row];
            gap_begin[q] = pass.gap_begin[row];
            gap_end[q] = pass.gap_end[row];
            int nearest = high[q] - (gap_end[q] - gap_begin[q]);  // gaps are no distance
            low[q] = window ? std::max(0, nearest - window) : 0;
            begin = std::min(begin, low[q]);
            end = std::max(end, high[q]);
            every_low = std::max(every_low, low[q]);
            every_high = std::min(every_high, high[q]);
            if (gap_begin[q] == gap_end[q]) continue;
            no_gap = std::min(no_gap, gap_begin[q]);
            gapped = std::max(gapped, gap_end[q]);
        }
        for (int q = queries.count; q < WIDE; q++) low[q] = high[q] = gap_begin[q] = gap_end[q] = 0;
    }

    bool whole(int key) const {
        return key >= every_low && key < every_high && (key < no_gap || key >= gapped);
    }

    // Scores of one key by the queries from `lane` on.
    vf masked(int key, int lane, vf scores) const {
        vi sees = (load<vi>(low + lane) <= key) & (load<vi>(high + lane) > key) &
                  ~((load<vi>(gap_begin + lane) <= key) & (load<vi>(gap_end + lane) > key));
        return select(sees, scores, splat(-INFINITY));
    }
};

struct Item {
    int kv_head, chunk, from, to;  // panels of queries, of one window
    int64_t before;                // work of the items before it
};

struct AttentionPlan {
    std::vector<Queries> panels;
    std::vector<Sight> sights;  // of the panels, in layers of the first one's window
    std::vector<Item> items;
    Buffer<float> partials;
    std::unique_ptr<std::atomic<int>[]> ended;  // chunks of each panel and key head, over all layers so far
    size_t counters = 0;
    int64_t work = 0;  // of all items

    void make(const Model& model, const Pass& pass) {
        panels.clear();
        sights.clear();
        items.clear();
        work = 0;
        int per_kv = model.query_heads / model.kv_heads;
        int64_t size = 0;
        for (int w = 0; w < pass.task.window_count; w++) {
            int rows = pass.task.windows[w + 1] - pass.task.windows[w];
            if (!rows) continue;
            int chunks = (pass.seen[pass.task.windows[w + 1] - 1] + CHUNK - 1) / CHUNK, queries = rows * per_kv;
            int count = (queries + WIDE - 1) / WIDE, begin = int(panels.size());
            for (int p = 0; p < count; p++) {
                panels.push_back({w, p * WIDE, std::min(WIDE, queries - p * WIDE), chunks, size});
                sights.emplace_back(pass, panels.back(), per_kv, model.layers->window);
                size += int64_t(chunks) * model.kv_heads * partial(model);
            }
            for (int head = 0; head < model.kv_heads; head++)
                for (int c = 0; c < chunks; c++)
                    for (int from = begin; from < int(panels.size()); from += SHARING) add(pass, per_kv, head, c, from);
        }
        if (partials.size() < size_t(size)) partials.resize(size);
        reset(panels.size() * model.kv_heads);
    }

    static int64_t partial(const Model& model) { return 2 * WIDE + WIDE * model.head_dim; }

    // Of one panel, key head and chunk: most[WIDE], sum[WIDE], then values [head_dim / WIDE][queries][WIDE].
    float* at(const Model& model, const Queries& queries, int kv_head, int chunk) {
        return &partials[queries.partials + (int64_t(kv_head) * queries.chunks + chunk) * partial(model)];
    }

    // Whether the chunk that a thread has ended was the last one of these queries in this layer.
    bool complete(const Model& model, int panel, int kv_head) {
        int before = ended[int64_t(panel) * model.kv_heads + kv_head].fetch_add(1, std::memory_order_acq_rel);
        return (before + 1) % panels[panel].chunks == 0;
    }

  private:
    void add(const Pass& pass, int per_kv, int kv_head, int chunk, int from) {
        int to = std::min(from + SHARING, int(panels.size()));
        items.push_back({kv_head, chunk, from, to, work});
        for (int p = from; p < to; p++) {
            int last = pass.task.windows[panels[p].window] + (panels[p].first + panels[p].count - 1) / per_kv;
            work += std::max(0, std::min(CHUNK, pass.seen[last] - chunk * CHUNK)) + 1;
        }
    }

    void reset(size_t size) {
        if (counters < size) ended = std::make_unique<std::atomic<int>[]>(counters = size);
        for (size_t i = 0; i < size; i++) ended[i].store(0, std::memory_order_relaxed);
    }
};

// What a thread does of it in each layer: items `begin .. end - 1`; and its memory.
struct AttentionShare {
    int begin, end;
    std::vector<int> starts;    // of each item's keys
    std::vector<int32_t> keys;  // their places: rows of heads in the cache
    Buffer<uint32_t> queries, values, weights;
    Buffer<float> scores, factors;

    void make(const Model& model, const Pass& pass, const AttentionPlan& plan, int index, int size) {
        queries.resize(size_t(model.head_dim) / 2 * WIDE);
        values.resize(size_t(CHUNK) * model.head_dim / 2);
        weights.resize(CHUNK / 2 * WIDE);
        scores.resize(CHUNK * WIDE);
        begin = first(plan, index, size), end = first(plan, index + 1, size);
        starts.clear();
        keys.clear();
        for (int i = begin; i < end; i++) {
            starts.push_back(int(keys.size()));
            find(model, pass, plan, plan.items[i]);
        }
        starts.push_back(int(keys.size()));
    }

  private:
    // The first item of a thread, so that all have about as much work.
    static int first(const AttentionPlan& plan, int index, int size) {
        auto middle = [&](size_t i) {
            int64_t after = i + 1 < plan.items.size() ? plan.items[i + 1].before : plan.work;
            return (plan.items[i].before + after) / 2;
        };
        size_t i = 0;
        while (i < plan.items.size() && middle(i) < plan.work * index / size) i++;
        return index < size ? int(i) : int(plan.items.size());
    }

    void find(const Model& model, const Pass& pass, const AttentionPlan& plan, const Item& item) {
        int window = plan.panels[item.from].window, first = item.chunk * CHUNK;
        int last = std::min(first + CHUNK, pass.seen[pass.task.windows[window + 1] - 1]);
        const int32_t* table = pass.task.page_table + pass.task.pages[window];
        auto from = std::lower_bound(pass.again.begin(), pass.again.end(), window,
                                     [](const Again& again, int window) { return again.window < window; });
        size_t start = keys.size();
        for (int page = first / model.page_size, inside = first % model.page_size; first < last; first++) {
            keys.push_back((table[page] * model.page_size + inside) * model.kv_heads + item.kv_head);
            if (++inside == model.page_size) page++, inside = 0;
        }
        int begin = item.chunk * CHUNK;
        for (; from != pass.again.end() && from->window == window; from++) {
            if (from->place < begin || from->place >= last) continue;
            int slot = table[from->of / model.page_size] * model.page_size + from->of % model.page_size;
            keys[start + from->place - begin] = slot * model.kv_heads + item.kv_head;
        }
    }
};

}  // namespace prove
