// update.cpp: counter-based normals, clip-and-noise and Adam over one row (SPEC §3 eq. 8, 12–14).
//
// Compiled once per instruction set (DCK_ISA), always without contraction: each operation rounds once, in the order
// of distcondense/kernels/random.py, so that every instruction set and Numba make the same normals bit for bit. No C++ library
// header is used here, lest an inline function compiled for AVX be linked into the portable path.
#include "distcondense.h"
#include "lanes.h"

namespace dck {
namespace DCK_ISA {
namespace {

constexpr int kChunk = 4 * W;  // columns made at a time: W counters of four words
constexpr int kBlock = 16;     // chunks in the buffer of a stage

struct RoundKeys {
    vq k0[10], k1[10];
    vq counter[2];                                 // of the even and of the odd 32-bit lanes
    vq first_c2, second_c0, second_c2, second_c3;  // what rounds 1 and 2 have in common over a row
};

struct Words {
    vu r[4];  // lane l belongs to counter (l % 4)·W/4 + l / 4, so that in_order restores column order; then normals
};

void prepare(const Noise& n, RoundKeys& keys) {
    uint32_t k0 = uint32_t(n.key), k1 = uint32_t(n.key >> 32);
    for (int r = 0; r < 10; ++r, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        keys.k0[r] = all_q(k0);
        keys.k1[r] = all_q(k1);
    }
    for (int l = 0; l < W; ++l) keys.counter[l % 2][l / 2] = uint64_t((l % 4) * (W / 4) + l / 4);
    // Only counter word 0 differs within a row, so half of rounds 1 and 2 is the same for every column.
    k0 = uint32_t(n.key), k1 = uint32_t(n.key >> 32);
    const uint64_t p1 = uint64_t(kM1) * n.step;
    const uint64_t p0 = uint64_t(kM0) * (uint32_t(p1 >> 32) ^ n.row ^ k0);
    keys.first_c2 = all_q(n.stream ^ k1);
    keys.second_c0 = all_q(uint32_t(p1) ^ (k0 + 0x9E3779B9u));
    keys.second_c2 = all_q(uint32_t(p0 >> 32) ^ (k1 + 0xBB67AE85u));
    keys.second_c3 = all_q(uint32_t(p0));
}

// 64-bit lanes hold 32-bit words in their low half; the high half is rubbish that the next multiplication ignores.
// Two vectors of counters go side by side, to fill the waiting time of the multiplications.
inline Words words(uint32_t first, const RoundKeys& keys) {
    const vq m0 = all_q(kM0), m1 = all_q(kM1);
    vq c0[2], c1[2], c2[2], c3[2], p0[2], p1[2];
    for (int h = 0; h < 2; ++h) {
        p0[h] = low_product(keys.counter[h] + first, m0);
        c2[h] = (p0[h] >> 32) ^ keys.first_c2;
        p1[h] = low_product(c2[h], m1);
        c0[h] = (p1[h] >> 32) ^ keys.second_c0, c1[h] = p1[h], c3[h] = keys.second_c3;
        c2[h] = p0[h] ^ keys.second_c2;
    }
#pragma GCC unroll 8
    for (int r = 2; r < 10; ++r) {
        for (int h = 0; h < 2; ++h) p0[h] = low_product(c0[h], m0), p1[h] = low_product(c2[h], m1);
        for (int h = 0; h < 2; ++h) {
            c0[h] = (p1[h] >> 32) ^ (c1[h] ^ keys.k0[r]), c1[h] = p1[h];
            c2[h] = (p0[h] >> 32) ^ (c3[h] ^ keys.k1[r]), c3[h] = p0[h];
        }
    }
    return {{even_odd(c0[0], c0[1]), even_odd(c1[0], c1[1]), even_odd(c2[0], c2[1]), even_odd(c3[0], c3[1])}};
}

// ln x for x in [2⁻³³, 1] (Cephes logf).
inline vf log_lanes(vf x) {
    const vi shifted = (vi)x - 0x3F3504F3;
    const vf e = to_float(shifted >> 23);
    const vf y = (vf)((shifted & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
    const vf z = y * y;
    vf p = y * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * y + 1.1676998740e-1f;
    p = p * y - 1.2420140846e-1f;
    p = p * y + 1.4249322787e-1f;
    p = p * y - 1.6668057665e-1f;
    p = p * y + 2.0000714765e-1f;
    p = p * y - 2.4999993993e-1f;
    p = p * y + 3.3333331174e-1f;
    p = p * y * z;
    p = p + e * -2.12194440e-4f;
    p = p - z * 0.5f;
    return (y + p) + e * 0.693359375f;
}

inline void box_muller(vu ra, vu rb, vf& first, vf& second) {
    // Two exact halves and one rounding: the float32 nearest to the unsigned word.
    const vf word = to_float((vi)(ra >> 16)) * 65536.0f + to_float((vi)(ra & 0xFFFFu));
    const vf radius = sqrt_lanes(log_lanes(word * 0x1p-32f + 0x1p-33f) * -2.0f);
    const vi turn = (vi)(rb >> 8);
    const vi quadrant = (turn + (1 << 21)) >> 22;
    const vf x = to_float(turn - (quadrant << 22)) * float(1.5707963267948966 * 0x1p-22);
    const vf z = x * x;
    const vf s = ((z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
    const vf c = ((z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - z * 0.5f + 1.0f;
    const vi odd = (vi)((vu)quadrant << 31) >> 31;
    const vu cosine = (vu)select(odd, s, c) ^ (((vu)(quadrant + 1) << 30) & kSign);
    const vu sine = (vu)select(odd, c, s) ^ (((vu)quadrant << 30) & kSign);
    first = radius * (vf)cosine;
    second = radius * (vf)sine;
}

// `chunks` chunks of words, or of normals, from a column on. One stage at a time over a buffer that stays in the first
// cache: a stage's turns do not depend on each other, so the processor overlaps them; chunk by chunk it could not.
inline void fill_words(int64_t column, int64_t chunks, const RoundKeys& keys, Words* out) {
#pragma GCC unroll 2
    for (int64_t c = 0; c < chunks; ++c) out[c] = words(uint32_t(column / 4 + c * W), keys);
}

inline void normals_of(Words& out) {
    vf a, b, e, f;
    box_muller(out.r[0], out.r[1], a, b);
    box_muller(out.r[2], out.r[3], e, f);
    in_order(a, b, e, f, (vf*)out.r);
}

inline void fill_normals(int64_t column, int64_t chunks, const RoundKeys& keys, Words* out) {
    fill_words(column, chunks, keys, out);
    for (int64_t c = 0; c < chunks; ++c) normals_of(out[c]);
}

inline int64_t chunks_of(int64_t columns) { return (columns + kChunk - 1) / kChunk; }

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

inline void adam_lanes(vf& x, vf g, vf& m, vf& v, const Adam& a) {
    m = m * a.beta1 + g * a.rest1;
    v = v * a.beta2 + (g * g) * a.rest2;
    x = x - (m * a.rate) / (sqrt_lanes(v * a.correction2) + a.eps);
}

// W columns: g·scale, plus noise z where there is some, into Adam.
template <bool kNoise>
inline void update_lanes(float* x, const float* g, float* m, float* v, const vf* z, float scale, float amount,
                         const Adam& adam) {
    vf slope = load(g) * scale, at = load(x), first = load(m), second = load(v);
    if (kNoise) slope = slope + *z * amount;
    adam_lanes(at, slope, first, second, adam);
    store(x, at);
    store(m, first);
    store(v, second);
}

// Columns j … end − 1, at most kChunk of them, with their normals z. The last ones, fewer than W, go through a padded
// copy, so that one code makes every bit.
template <bool kNoise>
inline void update_chunk(float* x, const float* g, float* m, float* v, int64_t j, int64_t end, const vf* z, float scale,
                         float amount, const Adam& adam) {
    for (; j + W <= end; j += W, ++z) update_lanes<kNoise>(x + j, g + j, m + j, v + j, z, scale, amount, adam);
    if (j >= end) return;
    float tail[4][W] = {};
    const size_t bytes = size_t(end - j) * sizeof(float);
    __builtin_memcpy(tail[0], x + j, bytes);
    __builtin_memcpy(tail[1], g + j, bytes);
    __builtin_memcpy(tail[2], m + j, bytes);
    __builtin_memcpy(tail[3], v + j, bytes);
    update_lanes<kNoise>(tail[0], tail[1], tail[2], tail[3], z, scale, amount, adam);
    __builtin_memcpy(x + j, tail[0], bytes);
    __builtin_memcpy(m + j, tail[2], bytes);
    __builtin_memcpy(v + j, tail[3], bytes);
}

// Adam waits for its divisions and square roots, Philox for its multiplications: while some columns are updated, the
// normals of the next are made, and the words of those after them, and memory brings their m and v.
void update_noisy(float* x, const float* g, float* m, float* v, int64_t d, float scale, const Noise& noise,
                  const Adam& adam) {
    RoundKeys keys;
    prepare(noise, keys);
    Words drawn = words(0, keys), normal = drawn;
    normals_of(normal);
    drawn = words(uint32_t(kChunk / 4), keys);
    for (int64_t j = 0; j < d; j += kChunk) {
        const int64_t ahead = j + 16 * kChunk;
        for (int64_t k = ahead; k < ahead + kChunk; k += 16) fetch_to_write(m + k), fetch_to_write(v + k);
        Words next = drawn;
        drawn = words(uint32_t((j + 2 * kChunk) / 4), keys);
        normals_of(next);
        update_chunk<true>(x, g, m, v, j, least(d, j + kChunk), (const vf*)normal.r, scale, noise.amount, adam);
        normal = next;
    }
}

}  // namespace

void bits(const Noise& noise, int64_t d, uint32_t* out) {
    RoundKeys keys;
    Words buffer[1];
    prepare(noise, keys);
    for (int64_t j = 0; j < d; j += kChunk) {
        fill_words(j, 1, keys, buffer);
        const vu* r = buffer[0].r;
        in_order((vf)r[0], (vf)r[1], (vf)r[2], (vf)r[3], (vf*)buffer[0].r);
        __builtin_memcpy(out + j, buffer, size_t(least(kChunk, d - j)) * sizeof(float));
    }
}

void normals(const Noise& noise, int64_t d, float* out) {
    RoundKeys keys;
    Words buffer[kBlock];
    prepare(noise, keys);
    for (int64_t j = 0; j < d; j += kBlock * kChunk) {
        const int64_t n = least(kBlock * kChunk, d - j);
        fill_normals(j, chunks_of(n), keys, buffer);
        __builtin_memcpy(out + j, buffer, size_t(n) * sizeof(float));
    }
}

void noise(float* g, int64_t d, float scale, const Noise& noise) {
    RoundKeys keys;
    Words buffer[kBlock] = {};
    const bool noisy = noise.amount > 0;
    prepare(noise, keys);
    for (int64_t j = 0; j < d; j += kBlock * kChunk) {
        const int64_t n = least(kBlock * kChunk, d - j);
        if (noisy) fill_normals(j, chunks_of(n), keys, buffer);
        const float* z = (const float*)buffer;
        // Plain loops vectorise, and every operation rounds as in update_lanes.
        for (int64_t k = 0; k < n; ++k) g[j + k] *= scale;
        for (int64_t k = 0; noisy && k < n; ++k) g[j + k] += z[k] * noise.amount;
    }
}

void adam(float* x, const float* g, float* m, float* v, int64_t d, const Adam& adam) {
    update_chunk<false>(x, g, m, v, 0, d, nullptr, 1.0f, 0.0f, adam);
}

void update(float* x, const float* g, float* m, float* v, int64_t d, float scale, const Noise& noise,
            const Adam& adam) {
    if (noise.amount > 0) {
        update_noisy(x, g, m, v, d, scale, noise, adam);
    } else {
        update_chunk<false>(x, g, m, v, 0, d, nullptr, scale, 0.0f, adam);
    }
}

// `nothing` is 0, which the compiler cannot know: otherwise it would remove the loop.
void copy(float* x, float* m, float* v, int64_t cells, int32_t nothing) {
    int64_t j = 0;
    for (; j + W <= cells; j += W) {
        store(x + j, (vf)((vi)load(x + j) ^ nothing));
        store(m + j, (vf)((vi)load(m + j) ^ nothing));
        store(v + j, (vf)((vi)load(v + j) ^ nothing));
    }
}

}  // namespace DCK_ISA
}  // namespace dck
