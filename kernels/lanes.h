// lanes.h: one vector of W rows or columns, for walk.cpp and update.cpp; internal, the ABI is distcondense.h.
//
// GCC/Clang vector types carry the arithmetic; the few things they cannot say well (the 32×32→64 product, square
// root, blend, unpack) have an intrinsic for AVX2 and AVX-512 and a plain loop elsewhere.
#ifndef DCK_LANES_H
#define DCK_LANES_H

#include <stddef.h>
#include <stdint.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace dck {
namespace DCK_ISA {

// DCK_NARROW keeps a source at eight lanes on a processor with AVX-512 too.
#if defined(__AVX512F__) && !defined(DCK_NARROW)
#define DCK_512
#endif

// DCK_WIDE gives the portable path the width of AVX-512, so that it is tested on processors without it.
#if defined(DCK_512) || (defined(DCK_WIDE) && !defined(__AVX2__))
#define DCK_LANES 16
#else
#define DCK_LANES 8
#endif
constexpr int W = DCK_LANES;

typedef float vf __attribute__((vector_size(4 * W), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * W), may_alias));
typedef uint64_t vq __attribute__((vector_size(4 * W), may_alias));
typedef float vf_anywhere __attribute__((vector_size(4 * W), aligned(4), may_alias));

constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u;  // Philox
constexpr uint32_t kSign = 0x80000000u;

static inline vf load(const float* p) { return *(const vf_anywhere*)p; }
static inline void store(float* p, vf a) { *(vf_anywhere*)p = a; }
static inline vf all(float a) { return a - vf{}; }
static inline vq all_q(uint32_t a) { return uint64_t(a) + vq{}; }
static inline vf to_float(vi a) { return __builtin_convertvector(a, vf); }
static inline vf masked(vi mask, vf a) { return (vf)(mask & (vi)a); }

// The product of the low halves of 64-bit lanes.
static inline vq low_product(vq a, vq b) {
#if defined(DCK_512)
    return (vq)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vq)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#else
    return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

// The low halves of the 64-bit lanes of two vectors, taken in turn.
static inline vu even_odd(vq even, vq odd) {
#if defined(__AVX2__) && !defined(DCK_512)
    return (vu)_mm256_blend_epi32((__m256i)even, (__m256i)(odd << 32), 0xAA);
#else
    return (vu)((even & 0xFFFFFFFFu) | (odd << 32));
#endif
}

static inline vf sqrt_lanes(vf a) {
#if defined(DCK_512)
    return (vf)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__)
    return (vf)_mm256_sqrt_ps((__m256)a);
#else
    for (int k = 0; k < W; ++k) a[k] = __builtin_sqrtf(a[k]);
    return a;
#endif
}

// yes where the mask is all ones, no where it is zero.
static inline vf select(vi mask, vf yes, vf no) {
#if defined(__AVX2__) && !defined(DCK_512)
    return (vf)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
#endif
}

// sums[l] += a[l]² in float64.
static inline void add_squares(double* sums, vf a) {
#if defined(__AVX2__) && !defined(DCK_512)
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128((__m256)a));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps((__m256)a, 1));
    _mm256_storeu_pd(sums, _mm256_loadu_pd(sums) + low * low);
    _mm256_storeu_pd(sums + 4, _mm256_loadu_pd(sums + 4) + high * high);
#else
    for (int l = 0; l < W; ++l) sums[l] += double(a[l]) * double(a[l]);
#endif
}

static inline bool any(vi mask) {
#if defined(DCK_512)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    int32_t seen = 0;
    for (int k = 0; k < W; ++k) seen |= mask[k];
    return seen != 0;
#endif
}

// Word w of lane l is column 4·counter(l) + w, with counter(l) = (l % 4)·W/4 + l / 4: four vectors in column order.
static inline void in_order(vf a, vf b, vf c, vf d, vf out[4]) {
#if defined(DCK_512)
    const __m512d ab0 = (__m512d)_mm512_unpacklo_ps((__m512)a, (__m512)b), ab1 = (__m512d)_mm512_unpackhi_ps((__m512)a, (__m512)b);
    const __m512d cd0 = (__m512d)_mm512_unpacklo_ps((__m512)c, (__m512)d), cd1 = (__m512d)_mm512_unpackhi_ps((__m512)c, (__m512)d);
    out[0] = (vf)_mm512_unpacklo_pd(ab0, cd0), out[1] = (vf)_mm512_unpackhi_pd(ab0, cd0);
    out[2] = (vf)_mm512_unpacklo_pd(ab1, cd1), out[3] = (vf)_mm512_unpackhi_pd(ab1, cd1);
#elif defined(__AVX2__)
    const __m256d ab0 = (__m256d)_mm256_unpacklo_ps((__m256)a, (__m256)b), ab1 = (__m256d)_mm256_unpackhi_ps((__m256)a, (__m256)b);
    const __m256d cd0 = (__m256d)_mm256_unpacklo_ps((__m256)c, (__m256)d), cd1 = (__m256d)_mm256_unpackhi_ps((__m256)c, (__m256)d);
    out[0] = (vf)_mm256_unpacklo_pd(ab0, cd0), out[1] = (vf)_mm256_unpackhi_pd(ab0, cd0);
    out[2] = (vf)_mm256_unpacklo_pd(ab1, cd1), out[3] = (vf)_mm256_unpackhi_pd(ab1, cd1);
#else
    for (int l = 0; l < W; ++l) {
        const int at = 4 * ((l % 4) * (W / 4) + l / 4);
        out[at / W][at % W] = a[l], out[at / W][at % W + 1] = b[l];
        out[at / W][at % W + 2] = c[l], out[at / W][at % W + 3] = d[l];
    }
#endif
}

// Asks for a line of the first cache, to be written.
static inline void fetch_to_write(const float* p) {
#if defined(__AVX2__)
    __asm__ volatile("prefetchw %0" : : "m"(*p));
#else
    __builtin_prefetch(p, 1, 3);
#endif
}

// Asks for a line of the second cache. GCC takes a loop of __builtin_prefetch for one that does nothing and drops it.
static inline void fetch_line(const float* p) {
#if defined(__AVX2__)
    __asm__ volatile("prefetcht1 %0" : : "m"(*p));
#else
    __builtin_prefetch(p, 0, 2);
#endif
}

// W floats, one from each row.
static inline vf column_of(const float* const rows[W], int64_t j) {
#if DCK_LANES == 16
    return vf{rows[0][j], rows[1][j], rows[2][j], rows[3][j], rows[4][j], rows[5][j], rows[6][j], rows[7][j],
              rows[8][j], rows[9][j], rows[10][j], rows[11][j], rows[12][j], rows[13][j], rows[14][j], rows[15][j]};
#else
    return vf{rows[0][j], rows[1][j], rows[2][j], rows[3][j], rows[4][j], rows[5][j], rows[6][j], rows[7][j]};
#endif
}

}  // namespace DCK_ISA
}  // namespace dck
#endif
