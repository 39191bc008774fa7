// What Python hands over, field by field as in `interface.py`. All pointers stay its own.
#pragma once
#include "panels.h"

namespace prove {

// A product y = W x + bias, and + B t with t = scale * A x on placeholder rows. Outputs are padded to whole blocks of
// WIDE, rows of A to narrow ones. Where several products are joined, block i of B takes part `parts[i]` of t alone.
struct Weight {
    const uint32_t* blocks;
    const float* bias;
    const uint32_t* a;
    const uint32_t* b;
    const int32_t* parts;
    int32_t inputs, outputs, rank, part_rank;
    float scale;
};

struct Layer {
    const float* input_norm;
    const float* middle_norm;
    const float* q_norm;
    const float* k_norm;
    Weight qkv, o, gate_up, down;
    bf16* keys;
    bf16* values;
    int32_t window;  // 0: none
    float scaling;
};

struct Model {
    const Layer* layers;
    const bf16* embedding;     // [vocabulary, hidden]
    const bf16* placeholders;  // [placeholder_count, hidden]: what rows of placeholders begin with, the last also those behind
    const float* final_norm;
    Weight head;
    const int64_t* banned;  // ids whose logits are -inf
    const bf16* cosines;    // [positions, head_dim]
    const bf16* sines;
    int32_t count, hidden, query_heads, kv_heads, head_dim, page_size, vocabulary, placeholder_count, banned_count, positions;
    float epsilon;
};

// What a pass is asked for. Rows are in the order of windows.
struct Task {
    const int64_t* ids;           // [rows]
    const int64_t* positions;     // [rows]
    const int64_t* slots;         // [rows]
    const int64_t* placeholders;  // [placeholder_count]: rows, ascending
    const int64_t* ordinals;      // [placeholder_count]: their places in their groups
    const int32_t* windows;       // [window_count + 1]: first row of each, FlashInfer's qo_indptr
    const int32_t* pages;         // [window_count + 1]: kv_indptr
    const int32_t* page_table;    // kv_indices
    const int32_t* gaps;          // [gap_count][row, size, begin, end]: keys of its window that those rows do not see; but
                                  // those from begin to the first row's position they see again, from end on
    const int64_t* outputs;       // [output_count]: rows that want logits
    float* logits;                // [output_count, vocabulary]
    bf16* states;                 // [output_count, hidden]: what the head saw
    int32_t rows, placeholder_count, window_count, gap_count, output_count, threads, products_only;
};

}  // namespace prove
