// Sixteen numbers at once. Everything above is written in these few functions; they have a form for AVX-512 and one that
// any GCC or Clang compiles for any CPU, with the same order of summation.
#pragma once
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace prove {

using bf16 = uint16_t;  // the upper half of a float
constexpr int LANES = 16;

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));

constexpr std::align_val_t LINE{64};  // a cache line: a vector across two of them takes twice the time

template <class T>
struct LineAllocator {
    using value_type = T;
    LineAllocator() = default;
    template <class U>
    LineAllocator(const LineAllocator<U>&) {}
    T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), LINE)); }
    void deallocate(T* memory, size_t) { ::operator delete(memory, LINE); }
    bool operator==(const LineAllocator&) const { return true; }
    bool operator!=(const LineAllocator&) const { return false; }
};

template <class T>
using Buffer = std::vector<T, LineAllocator<T>>;

template <class V>
static inline V load(const void* from) {
    V value;
    memcpy(&value, from, sizeof(V));
    return value;
}

template <class V>
static inline void store(void* to, V value) {
    memcpy(to, &value, sizeof(V));
}

static inline vf splat(float x) { return vf{} + x; }

static inline float number(bf16 x) {
    uint32_t bits = uint32_t(x) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// To the nearest, ties to even, as torch rounds. NaN is not kept apart: no caller has one.
static inline bf16 rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bf16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Each lane rounded to bf16, as a float again. (The form for bf16 takes denormals for zero.)
static inline vf rounded(vf x) {
#if defined(__AVX512BF16__) && !defined(PROVE_PORTABLE)
    __m256bh bits = _mm512_cvtneps_pbh((__m512)x);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)bits), 16);
#else
    vu bits = (vu)x;
    return (vf)((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u);
#endif
}

static inline vf numbers(const bf16* from) {
#ifdef __AVX512F__
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from)), 16);
#else
    vu wide;
    for (int i = 0; i < LANES; i++) wide[i] = from[i];
    return (vf)(wide << 16);
#endif
}

// Stores lanes rounded to bf16. (The AVX-512 form takes denormals for zero.)
static inline void narrow(bf16* to, vf x) {
#if defined(__AVX512BF16__) && !defined(PROVE_PORTABLE)
    __m256bh bits = _mm512_cvtneps_pbh((__m512)x);
    memcpy(to, &bits, sizeof(bits));
#elif defined(__AVX512F__)
    _mm256_storeu_si256((__m256i*)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)rounded(x), 16)));
#else
    vu bits = (vu)rounded(x) >> 16;
    for (int i = 0; i < LANES; i++) to[i] = bf16(bits[i]);
#endif
}

// sum + a.low * b.low + a.high * b.high, lane by lane, for pairs of bf16.
static inline vf dot(vf sum, vu a, vu b) {
#if defined(__AVX512BF16__) && !defined(PROVE_PORTABLE)
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += (vf)(a & 0xffff0000u) * (vf)(b & 0xffff0000u);
    return sum + (vf)(a << 16) * (vf)(b << 16);
#endif
}

static inline vu splat_pair(uint32_t pair) { return vu{} + pair; }

static inline uint32_t pair(bf16 low, bf16 high) { return uint32_t(low) | uint32_t(high) << 16; }

static inline vf select(vi where, vf yes, vf no) { return (vf)(((vi)yes & where) | ((vi)no & ~where)); }

static inline float total(vf x) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)x);
#else
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) x[i] += x[i + width];
    return x[0];
#endif
}

// A bit for each lane that is all ones; the others are zero.
static inline uint32_t lanes(vi where) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)where, (__m512i)where);
#else
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++) bits |= uint32_t(where[i] & 1) << i;
    return bits;
#endif
}

// The larger of each two lanes; y where x is no number.
static inline vf larger(vf x, vf y) {
#ifdef __AVX512F__
    return (vf)_mm512_max_ps((__m512)x, (__m512)y);
#else
    return select(x > y, x, y);
#endif
}

static inline float largest(vf x) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)x);
#else
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
#endif
}

// Starts to fetch a line into the cache. GCC takes a function of nothing but its own prefetches for one without effect.
static inline void expect(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetcht1 %0" ::"m"(*(const char*)line));
#else
    __builtin_prefetch(line, 0, 2);
#endif
}

// Loads a line and does nothing with it.
static inline void touch(const void* line) { asm volatile("" ::"r"(*(const char*)line)); }

// e^x for x <= 88; 0 below -87. Relative error about 1e-7.
static inline vf exponential(vf x) {
#ifdef __AVX512F__
    __m512 clipped = _mm512_max_ps(_mm512_set1_ps(-200.0f), (__m512)x);  // of a NaN too
    vf whole = (vf)_mm512_roundscale_ps((__m512)((vf)clipped * 1.44269504f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf r = (vf)clipped - whole * 0.693359375f + whole * 2.12194440e-4f;
#else
    vf clipped = select(x > -87.0f, x, splat(-87.0f));
    vf shifted = clipped * 1.44269504f + 12582912.0f;  // the nearest integer appears in the low bits
    vi power = (vi)shifted - 0x4b400000;
    vf whole = shifted - 12582912.0f;
    vf r = clipped - whole * 0.693359375f + whole * 2.12194440e-4f;
#endif
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
#ifdef __AVX512F__
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)whole);
#else
    vf value = (vf)((vi)p + (power << 23));
    return select(x > -87.0f, value, vf{});
#endif
}

}  // namespace prove
