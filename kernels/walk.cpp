// walk.cpp: margins and the sparse finite-difference gradient of a tree ensemble (SPEC §5), W rows at a time.
//
// The path walk of SPEC §5 waits for memory and for mispredicted branches, so small trees are turned round: one row a
// lane, every inner node tested, and from the bottom up each slot holds the leaf a row would reach from there. A flip
// at a node then costs one subtraction, (leaf from the sibling) − (leaf from the child), masked to the rows that pass the node and
// flip. A feature tested twice on a path is evaluated again over the nodes it can change. Trees too large for this
// are walked row by row. All ways add the same float32 leaf differences in tree order, hence the same bits.
// Compiled once per instruction set (DCK_ISA); no C++ library headers, as in update.cpp.
// With sixteen lanes x and Δ of a thousand used features lie in the second cache, with eight half of that: a tenth less
// time for a step on AVX-512, although margins alone take longer.
#define DCK_NARROW
#include "distcondense.h"
#include "lanes.h"

namespace dck {
namespace DCK_ISA {

void bits(const Noise&, int64_t, uint32_t*);
void normals(const Noise&, int64_t, float*);
void noise(float*, int64_t, float, const Noise&);
void adam(float*, const float*, float*, float*, int64_t, const Adam&);
void update(float*, const float*, float*, float*, int64_t, float, const Noise&, const Adam&);
void copy(float*, float*, float*, int64_t, int32_t);

namespace {

inline vf at(const float* p, int64_t slot) { return *(const vf*)(p + slot * W); }
inline void put(float* p, int64_t slot, vf a) { *(vf*)(p + slot * W) = a; }
inline vi mask_at(const int32_t* p, int64_t slot) { return *(const vi*)(p + slot * W); }
inline void put_mask(int32_t* p, int64_t slot, vi a) { *(vi*)(p + slot * W) = a; }

// Δ⁺ and Δ⁻ of a feature lie side by side: one cache line in AVX2.
inline void add(const Scratch& s, int64_t feature, vf up, vf down) {
    put(s.delta, 2 * feature, at(s.delta, 2 * feature) + up);
    put(s.delta, 2 * feature + 1, at(s.delta, 2 * feature + 1) + down);
}

template <bool kMissing>
inline vi test(vf x, const Node& node) {
    vi below = x < node.threshold;
    if (kMissing) below = below | ((x != x) & -int32_t(node.default_left));
    return below;
}

// The used columns of the block, one row a lane; lanes without a row repeat the first. Says if a value is missing.
bool gather(const Packed& p, const float* X, int64_t rows, int64_t d, Scratch& s) {
    const float* row[W];
    for (int r = 0; r < W; ++r) row[r] = X + (r < rows ? r : 0) * d;
    vi missing = {};
    for (int64_t f = 0; f < p.features; ++f) {
        const vf x = column_of(row, p.columns[f]);
        missing = missing | (x != x);
        put(s.x, f, x);
    }
    return any(missing);
}

// Bottom-up: the leaf reached from every inner slot; the root is slot 0.
template <bool kMissing>
inline void evaluate(const Packed& p, const Tree tree, const Scratch s) {
    const Node* const nodes = p.nodes + tree.node;
    const float* const leaves = p.leaves + tree.leaf;
    const float* leaf = leaves + tree.bough_leaves;
    for (int32_t k = tree.boughs; k < tree.inner; ++k, leaf += 2) {
        const vi below = test<kMissing>(at(s.x, nodes[k].feature), nodes[k]);
        put_mask(s.below, k, below);
        put(s.value, k, select(below, all(leaf[0]), all(leaf[1])));
    }
    // The leaves of twigs are read again only where a nested feature moves.
    const int32_t filled = tree.nested_first == tree.nested_last ? tree.bough_leaves : tree.slots - tree.inner;
    for (int32_t k = 0; k < filled; ++k) put(s.value, tree.inner + k, all(leaves[k]));
    for (int32_t k = tree.boughs - 1; k >= 0; --k) {
        const Node& node = nodes[k];
        const vi below = test<kMissing>(at(s.x, node.feature), node);
        put_mask(s.below, k, below);
        put(s.value, k, select(below, at(s.value, node.left), at(s.value, node.right)));
    }
}

// Adds what a flip at the node changes, in the rows that flip. A missing value compares false both ways: no flip.
inline void flip(const Node& node, vi to_left, vi to_right, vf change, const float* steps, const Scratch& s) {
    if (node.nested) return;
    const vf x = at(s.x, node.feature);
    const float step = steps[node.feature];
    const vi flips_up = to_left & (x + step >= node.threshold);
    const vi flips_down = to_right & (x - step < node.threshold);
    // Added even where no row flips: a branch would be mispredicted at every other deep node.
    add(s, node.feature, masked(flips_up, change), -masked(flips_down, change));
}

// Top-down: which rows pass a node, and what a flip there would change.
inline void flips(const Packed& p, const Tree tree, const float* steps, const Scratch s) {
    const Node* const nodes = p.nodes + tree.node;
    put_mask(s.reach, 0, ~vi{});
    for (int32_t k = 0; k < tree.boughs; ++k) {
        const Node& node = nodes[k];
        const vi below = mask_at(s.below, k), reach = mask_at(s.reach, k);
        const vi to_left = reach & below, to_right = reach & ~below;
        put_mask(s.reach, node.left, to_left);
        put_mask(s.reach, node.right, to_right);
        flip(node, to_left, to_right, at(s.value, node.right) - at(s.value, node.left), steps, s);
    }
    const float* leaf = p.leaves + tree.leaf + tree.bough_leaves;
    for (int32_t k = tree.boughs; k < tree.inner; ++k, leaf += 2) {
        const vi below = mask_at(s.below, k), reach = mask_at(s.reach, k);
        flip(nodes[k], reach & below, reach & ~below, all(leaf[1] - leaf[0]), steps, s);
    }
}

// A feature tested both above and below some node: the nodes it can change, evaluated again with the moved value.
template <bool kMissing>
inline vf moved_leaf(const Packed& p, const Tree tree, const Nested nested, vf x, const Scratch s) {
    const Node* nodes = p.nodes + tree.node;
    for (int32_t k = nested.first; k < nested.last; ++k) {
        const Again& a = p.again[k];
        const vi below = a.moved ? test<kMissing>(x, nodes[a.node]) : mask_at(s.below, a.node);
        put(s.value, tree.slots + a.node, select(below, at(s.value, a.left), at(s.value, a.right)));
    }
    return at(s.value, tree.slots);
}

// SPEC §5 for one row (one lane) of a large tree; the lane's margin grows by its leaf.
inline bool goes_left(float x, const WalkNode& node) { return x < node.threshold || (x != x && node.default_left); }

inline int32_t next(const WalkNode& node, float x) { return node.left + (goes_left(x, node) ? 0 : 1); }

float walk(const Packed& p, const Tree& tree, int lane, const float* steps, Scratch& s) {
    const WalkNode* const walk = p.walk;
    int32_t v = tree.node, length = 0;
    while (walk[v].feature >= 0) {
        s.path[length++] = v;
        v = next(walk[v], s.x[walk[v].feature * W + lane]);
    }
    const float leaf = walk[v].threshold;
    for (int32_t k = 0; steps && k < length; ++k) {
        const WalkNode& node = walk[s.path[k]];
        const float x = s.x[node.feature * W + lane];
        const bool below = goes_left(x, node);
        const float moved = below ? x + steps[node.feature] : x - steps[node.feature];
        if (goes_left(moved, node) == below) continue;
        bool earlier = false;
        for (int32_t q = 0; q < k && !earlier; ++q) {
            const WalkNode& above = walk[s.path[q]];
            earlier = above.feature == node.feature && goes_left(moved, above) != goes_left(x, above);
        }
        if (earlier) continue;
        int32_t w = node.left + (below ? 1 : 0);
        while (walk[w].feature >= 0) {
            w = next(walk[w], walk[w].feature == node.feature ? moved : s.x[walk[w].feature * W + lane]);
        }
        s.delta[(2 * int64_t(node.feature) + (below ? 0 : 1)) * W + lane] += walk[w].threshold - leaf;
    }
    return leaf;
}

// The t-th tree's share of the next block's cache lines: its gather finds them there, however far apart they lie.
inline int64_t fetch(const Packed& p, const Ahead& ahead, int64_t d, int64_t line, int64_t t) {
    if (!ahead.rows) return line;
    for (const int64_t end = (t + 1) * p.n_lines / (2 * p.n_trees); line < end; ++line) {
        const float* at = ahead.X + p.lines[line];
        for (int64_t r = 0; r < ahead.rows; ++r, at += d) fetch_line(at);
    }
    return line;
}

// Margins of the block; with steps also Δ⁺ and Δ⁻ of every used feature.
template <bool kMissing>
vf run(const Packed& p, int64_t rows, int64_t d, const float* steps, const Ahead ahead, Scratch& given) {
    Scratch s = given;  // a local copy stays in registers; through the reference every store might change it
    const Tree* const trees = p.trees;
    int64_t fetched = 0;
    vf margin = all(p.base);
    for (int64_t t = 0; t < p.n_trees; ++t) {
        const Tree tree = trees[t];
        fetched = fetch(p, ahead, d, fetched, 2 * t);
        if (tree.inner < 0) {
            for (int r = 0; r < W; ++r) margin[r] += walk(p, tree, r < rows ? r : 0, r < rows ? steps : nullptr, given);
            continue;
        }
        evaluate<kMissing>(p, tree, s);
        const vf leaf = at(s.value, 0);
        margin = margin + leaf;
        if (!steps) continue;
        fetched = fetch(p, ahead, d, fetched, 2 * t + 1);
        flips(p, tree, steps, s);
        for (int32_t k = tree.nested_first; k < tree.nested_last; ++k) {
            const Nested& nested = p.nested[k];
            const int64_t f = nested.feature;
            const vf x = at(s.x, f), step = all(steps[f]);
            const vf up = moved_leaf<kMissing>(p, tree, nested, x + step, s) - leaf;
            add(s, f, up, moved_leaf<kMissing>(p, tree, nested, x - step, s) - leaf);
        }
    }
    return margin;
}

// Two vectors side by side: one register where there are 512 bits, though a block has eight rows there too.
typedef float vff __attribute__((vector_size(8 * W), aligned(4 * W), may_alias));
typedef uint32_t vuu __attribute__((vector_size(8 * W), may_alias));

// e^x (Cephes expf) for |x| ≤ 87; beyond that a sigmoid is 0 or 1 in float32 anyway.
template <typename Floats, typename Words>
inline Floats exp_lanes(Floats x) {
    x = x > 87.0f ? 87.0f - Floats{} : x;
    x = x < -87.0f ? -87.0f - Floats{} : x;
    const Floats shifted = x * 1.44269504088896341f + 12582912.0f;
    const Floats n = shifted - 12582912.0f;
    x = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    Floats p = x * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    p = p * (x * x) + x + 1.0f;
    return p * (Floats)(((Words)shifted - 0x4B400000u + 127u) << 23);
}

template <typename Floats, typename Words>
inline Floats sigmoid(Floats z) {
    return 1.0f / (1.0f + exp_lanes<Floats, Words>(-z));
}

// link(M + Δ⁺) − link(M + Δ⁻), where both Δ lie from `delta` on. σ(a) − σ(b) = σ(−b) − σ(−a), and of the two the one
// with small sigmoids keeps its digits where the score is saturated: `flip` is the sign bit where M > 0. Both sigmoids
// always: most rows move one way only, but a branch would be mispredicted, and neither division waits for the other.
inline vf rise(const Packed& p, vf margin, vu flip, const float* delta) {
    if (!p.sigmoid) return (margin + at(delta, 0)) - (margin + at(delta, 1));
    vf high, low;
#if defined(__AVX512F__)
    const vff margins = (vff)_mm512_broadcast_f32x8((__m256)margin), flips = (vff)_mm512_broadcast_f32x8((__m256)flip);
    const vff both = sigmoid<vff, vuu>((vff)((vuu)(margins + *(const vff*)delta) ^ (vuu)flips));
    high = (vf)_mm512_castps512_ps256((__m512)both), low = (vf)_mm512_extractf32x8_ps((__m512)both, 1);
#else
    high = sigmoid<vf, vu>((vf)((vu)(margin + at(delta, 0)) ^ flip));
    low = sigmoid<vf, vu>((vf)((vu)(margin + at(delta, 1)) ^ flip));
#endif
    // Exchanged, not negated: a row that does not move gets +0 whatever its neighbours in the block do.
    const vi exchanged = (vi)flip >> 31;
    return select(exchanged, low, high) - select(exchanged, high, low);
}

}  // namespace

void margins(const Packed& p, const float* X, int64_t rows, int64_t d, Scratch& s, float* out) {
    const Ahead none = {nullptr, 0};
    const vf margin =
        gather(p, X, rows, d, s) ? run<true>(p, rows, d, nullptr, none, s) : run<false>(p, rows, d, nullptr, none, s);
    for (int64_t r = 0; r < rows; ++r) out[r] = margin[r];
}

int64_t gradient(const Packed& p, const float* X, int64_t rows, int64_t d, const float* steps, const float* dldf,
                 const Ahead& ahead, Scratch& s, double* squares) {
    __builtin_memset(s.delta, 0, 2 * p.features * W * sizeof(float));
    const vf margin =
        gather(p, X, rows, d, s) ? run<true>(p, rows, d, steps, ahead, s) : run<false>(p, rows, d, steps, ahead, s);
    int64_t count = 0;
    for (int64_t f = 0; f < p.features; ++f) {
        s.touched[count] = int32_t(f);
        count += any((at(s.delta, 2 * f) != 0.0f) | (at(s.delta, 2 * f + 1) != 0.0f));
    }
    const vu flip = (vu)(margin > 0.0f) & kSign;
    vf weight = {};
    for (int64_t r = 0; r < rows; ++r) weight[r] = dldf[r];
    __builtin_memset(squares, 0, kSums * W * sizeof(double));
    const int64_t whole = d / 8 * 8;
    for (int64_t k = 0; k < count; ++k) {
        const int64_t f = s.touched[k];
        const vf g = weight * (rise(p, margin, flip, s.delta + 2 * f * W) / (2.0f * steps[f]));
        put(s.delta, k, g);  // k ≤ f: what is overwritten has been read
        double* const sums = squares + (p.columns[f] < whole ? p.columns[f] % 8 : 8) * W;
        add_squares(sums, g);
    }
    return count;
}

#define DCK_TEXT(name) #name
#define DCK_NAME(name) DCK_TEXT(name)
extern const Kernels kernels;
const Kernels kernels = {DCK_NAME(DCK_ISA), W, margins, gradient, bits, normals, noise, adam, update, copy};

}  // namespace DCK_ISA
}  // namespace dck
