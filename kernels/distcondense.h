// distcondense.h: the C ABI of the native kernels, and below it what the sources share among themselves.
//
// The contract is README.md in this folder. Arrays are C-contiguous, X is (rows, d) float32, and nothing is checked
// here that distcondense/kernels/native.py has checked already. Every function gives the same bits for any number of
// threads and any instruction set: a row's result depends on that row, its global number and the arguments alone.
#ifndef DISTCONDENSE_H
#define DISTCONDENSE_H

#include <stdint.h>

#define DCK_ABI 2
#define DCK_OK 0
#define DCK_NO_MEMORY 1
#define DCK_NOT_A_FOREST 2

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dck_ensemble dck_ensemble;

int32_t dck_abi(void);
const char* dck_isa(void);                     // the instruction set in use: "portable", "avx2" or "avx512"
int32_t dck_use_isa(const char* name);         // 0 if this processor has it, else -1 and nothing changes

// TreeEnsemble as in distcondense/kernels/ensemble.py. *status is DCK_NOT_A_FOREST where an index is out of range or a
// node is reached twice; then the answer is null. way: 0 the cheaper for each tree, 1 lanes, 2 walk (all the same bits).
dck_ensemble* dck_pack(const int32_t* feature, const float* threshold, const int32_t* left, const uint8_t* default_left,
                       int64_t nodes, const int32_t* roots, int64_t trees, float base, int32_t sigmoid,
                       int64_t n_features, int32_t way, int32_t* status);
void dck_free(dck_ensemble* ensemble);

int32_t dck_margins(const dck_ensemble* ensemble, const float* X, int64_t rows, int64_t d, float* out, int32_t threads);
int32_t dck_jacobian(const dck_ensemble* ensemble, const float* X, int64_t rows, int64_t d, const float* steps,
                     float* out, int32_t threads);

// The same without its zeros, row by row with ascending columns: indptr (rows + 1) is filled, and dck_take copies
// indices and data (indptr[rows] each) and frees them. Null where there is no memory.
typedef struct dck_entries dck_entries;
dck_entries* dck_jacobian_csr(const dck_ensemble* ensemble, const float* X, int64_t rows, int64_t d, const float* steps,
                              int64_t* indptr, int32_t threads);
void dck_take(dck_entries* entries, int32_t* indices, float* data);

void dck_bits(uint64_t key, uint32_t stream, uint32_t step, uint32_t row0, int64_t rows, int64_t d, uint32_t* out);
void dck_normals(uint64_t key, uint32_t stream, uint32_t step, uint32_t row0, int64_t rows, int64_t d, float* out);

// Privacy of the `published` mechanism and its optimiser; noise comes from stream DCK_NOISE_STREAM.
#define DCK_NOISE_STREAM 7
int32_t dck_clip_and_noise(float* G, int64_t rows, int64_t d, double clip, const float* sigma, uint64_t key,
                           uint32_t step, uint32_t row0, float* norms, int32_t threads);
int32_t dck_adam(float* X, const float* G, float* m, float* v, int64_t rows, int64_t d, int64_t t, double rate,
                 double beta1, double beta2, double eps, int32_t threads);
int32_t dck_fused_step(const dck_ensemble* ensemble, float* X, const float* dldf, const float* steps, float* m,
                       float* v, int64_t rows, int64_t d, int64_t t, double clip, double sigma_base, double rate,
                       double beta1, double beta2, double eps, uint64_t key, uint32_t step, uint32_t row0,
                       float* norms, float* sigmas, int32_t threads);

// The memory limit: X, m and v streamed once in and once out, in place, nothing computed.
int32_t dck_copy_control(float* X, float* m, float* v, int64_t rows, int64_t d, int32_t threads);

#ifdef __cplusplus
}

// ---- shared by the sources, no part of the ABI -------------------------------------------------------------------
namespace dck {

constexpr int kMaxWidth = 16;  // rows that one block holds at most
// A row's squares are summed in float64 by column % 8, and apart in the columns after the last whole eight: one order,
// that of update.py, for the dense kernels and for the sparse gradient.
constexpr int kSums = 9;

// A small tree is evaluated whole, one row a lane (no branches, no chased pointers). Its slots are: boughs, the inner
// nodes with an inner child, breadth first (the root is slot 0); twigs, whose children are both leaves; the leaves of
// boughs; the leaves of twigs, two by two. Half of all nodes are twigs, and they need no slots read or written.
struct Node {
    float threshold;
    int32_t feature;        // compact: an index into Packed::columns
    uint16_t left, right;   // slots
    uint16_t default_left;  // 1 or 0
    uint16_t nested;        // 1 where some path of this tree tests the feature twice
};

// One inner node to be evaluated again because a nested feature has moved; slots from `slots` on are the moved ones.
struct Again {
    uint16_t node, left, right, moved;
};

struct Nested {
    int32_t feature, first, last;  // compact feature, Again entries [first, last), children before parents
};

// A larger tree is walked row by row along its path.
struct WalkNode {
    float threshold;  // at a leaf: its value
    int32_t feature;  // compact, −1 at a leaf
    int32_t left;     // the right child is left + 1
    int32_t default_left;
};

struct Tree {
    int32_t inner, slots;               // inner == −1: walked, not evaluated whole
    int32_t node, leaf;                 // first Node and first leaf value, or the root's WalkNode
    int32_t nested_first, nested_last;  // into Packed::nested
    int32_t boughs, bough_leaves;       // how many inner nodes have an inner child, and the leaves these have
};

struct Packed {
    const Tree* trees;
    const Node* nodes;
    const float* leaves;
    const Again* again;
    const Nested* nested;
    const WalkNode* walk;
    const int32_t* columns;  // (features,) the columns that any tree tests, ascending
    const int32_t* lines;    // (n_lines,) of these, one for about every line of cache, to be fetched ahead
    int64_t n_trees, features, n_lines;
    int32_t max_slots, max_inner, max_path;
    float base;
    bool sigmoid;
};

// Scratch of one thread; everything is [..][width] and 64-byte aligned.
struct Scratch {
    float* x;          // (features)
    float* delta;      // (2 features) Δ⁺ and Δ⁻ in turn; later the gradient of the touched features
    float* value;      // (max_slots + max_inner) leaf reached from a slot; then the same with a feature moved
    int32_t* below;    // (max_inner) test true
    int32_t* reach;    // (max_slots) row passes here
    int32_t* path;     // (max_path), for one row
    int32_t* touched;  // (features), a plain list
};

struct Noise {
    uint64_t key;
    uint32_t stream, step, row;
    float amount;  // σ_i C
};

struct Adam {
    float beta1, rest1, beta2, rest2, rate, correction2, eps;
};

// The rows of the block after this one, fetched into the cache while this one is walked; none: rows == 0.
struct Ahead {
    const float* X;
    int64_t rows;
};

// One instruction set's kernels. A block is `rows` ≤ width rows of X.
struct Kernels {
    const char* name;
    int width;
    void (*margins)(const Packed&, const float* X, int64_t rows, int64_t d, Scratch&, float* margins);
    // delta[k] becomes dldf·J for the k-th entry of `touched`, whose length is returned; squares is (kSums, width).
    int64_t (*gradient)(const Packed&, const float* X, int64_t rows, int64_t d, const float* steps, const float* dldf,
                        const Ahead&, Scratch&, double* squares);
    void (*bits)(const Noise&, int64_t d, uint32_t* out);
    void (*normals)(const Noise&, int64_t d, float* out);
    void (*noise)(float* g, int64_t d, float scale, const Noise&);
    void (*adam)(float* x, const float* g, float* m, float* v, int64_t d, const Adam&);
    void (*update)(float* x, const float* g, float* m, float* v, int64_t d, float scale, const Noise&, const Adam&);
    void (*copy)(float* x, float* m, float* v, int64_t cells, int32_t nothing);
};

namespace portable { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }

}  // namespace dck

struct dck_ensemble {
    dck::Packed packed;
};
#endif
#endif
