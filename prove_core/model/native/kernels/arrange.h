// Rows in the order in which they are computed: tokens, then placeholders, so that an adapter's rows follow each other.
#pragma once
#include <algorithm>

#include "interface.h"

namespace prove {

// In its window a key `place` that is that of place `of` again.
struct Again {
    int window, place, of;
};

struct Pass {
    Task task;
    int rows, tokens;
    Buffer<bf16> hidden;                        // [rows, hidden]
    std::vector<int> row_at;                    // of each row in the order of windows
    std::vector<int64_t> positions, slots;      // in the order of computation
    std::vector<int> outputs;                   // rows in that order
    std::vector<Again> again;                   // window after window
    std::vector<int> seen, gap_begin, gap_end;  // in the order of windows: keys up to the row's own, less those of its gap

    void make(const Model& model, const Task& asked) {
        task = asked;
        rows = task.rows;
        tokens = rows - task.placeholder_count;
        order();
        look_up(model);
        see();
        outputs.resize(task.output_count);
        for (int i = 0; i < task.output_count; i++) outputs[i] = row_at[task.outputs[i]];
    }

  private:
    void order() {
        row_at.resize(rows);
        positions.resize(rows);
        slots.resize(rows);
        for (int row = 0, next = 0; row < rows; row++) {
            bool placeholder = next < task.placeholder_count && task.placeholders[next] == row;
            row_at[row] = placeholder ? tokens + next++ : row - next;
            positions[row_at[row]] = task.positions[row];
            slots[row_at[row]] = task.slots[row];
        }
    }

    void look_up(const Model& model) {
        int64_t size = model.hidden;
        hidden.resize(rows * size);
        for (int row = 0; row < rows; row++) {
            const bf16* from = model.embedding + task.ids[row] * size;
            int placeholder = row_at[row] - tokens;
            if (placeholder >= 0 && model.placeholder_count)
                from = model.placeholders +
                       std::min<int64_t>(task.ordinals[placeholder], model.placeholder_count - 1) * size;
            std::copy(from, from + size, hidden.begin() + row_at[row] * size);
        }
    }

    void see() {
        seen.resize(rows);
        gap_begin.assign(rows, 0);
        gap_end.assign(rows, 0);
        for (int row = 0; row < rows; row++) seen[row] = int(task.positions[row]) + 1;
        again.clear();
        int window = 0;
        for (const int32_t* gap = task.gaps; gap != task.gaps + 4 * task.gap_count; gap += 4) {
            for (int row = gap[0]; row < gap[0] + gap[1]; row++) {
                gap_begin[row] = gap[2], gap_end[row] = gap[3];
                seen[row] += gap[3] - gap[2];
            }
            while (task.windows[window + 1] <= gap[0]) window++;
            for (int of = gap[2]; of < task.positions[gap[0]]; of++) again.push_back({window, gap[3] + of - gap[2], of});
        }
    }
};

}  // namespace prove
