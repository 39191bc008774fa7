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
    const float* final_norm;
    Weight head;
    const bf16* cosines;  // [positions, head_dim]
    const bf16* sines;
    int32_t count, hidden, query_heads, kv_heads, head_dim, page_size, vocabulary;
    float epsilon;
};

// One pass. Rows are in the order tokens, then placeholders; `row_at` leads there from the order of windows.
struct Pass {
    bf16* hidden;              // [rows, hidden]: embeddings in, states out
    const int64_t* positions;  // [rows]
    const int64_t* slots;      // [rows]
    const int32_t* row_at;     // [rows], in the order of windows like the rest
    const int32_t* windows;    // [count + 1]: first row of each, FlashInfer's qo_indptr
    const int32_t* pages;      // [count + 1]: kv_indptr
    const int32_t* page_table; // kv_indices
    const int32_t* seen;       // [rows]: keys up to the row's own
    const int32_t* gap_begin;  // [rows]: keys that it does not see
    const int32_t* gap_end;
    const int32_t* outputs;    // [output_count]: rows that want logits
    float* logits;             // [output_count, vocabulary]
    bf16* states;              // [output_count, hidden]: what the head saw
    int32_t rows, tokens, window_count, output_count, threads, products_only;
};

}  // namespace prove
