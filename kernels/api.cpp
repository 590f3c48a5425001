// api.cpp: the C ABI: rows in blocks over threads, the instruction set chosen at run time.
//
// Threads are started per call (tens of microseconds against milliseconds of work) and not kept: a pool would not
// survive the fork that process pools and Ray workers may do.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "distcondense.h"

namespace {

using dck::Kernels;
using dck::Packed;
using dck::Scratch;

bool available(const Kernels* kernels) {
#if defined(DCK_X86)
    if (kernels == &dck::avx2::kernels) return __builtin_cpu_supports("avx2");
    if (kernels == &dck::avx512::kernels) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    }
#endif
    return kernels == &dck::portable::kernels;
}

const Kernels* const kAll[] = {
#if defined(DCK_X86)
    &dck::avx512::kernels, &dck::avx2::kernels,
#endif
    &dck::portable::kernels};

const Kernels* best() {
    for (const Kernels* kernels : kAll) {
        if (available(kernels)) return kernels;
    }
    return &dck::portable::kernels;
}

std::atomic<const Kernels*> chosen{nullptr};

const Kernels& isa() {
    const Kernels* kernels = chosen.load();
    if (!kernels) chosen.store(kernels = best());
    return *kernels;
}

// One aligned piece of memory, cut into the arrays of a Scratch.
class Workspace {
public:
    Workspace(const Packed& p, int width) {
        const size_t line = size_t(width) * 4, f = p.features;
        const size_t slots = p.max_slots + 1, inner = p.max_inner + 1;
        const size_t list = (size_t(p.max_path) + 1) * 4, touched = (f + 1) * 4;
        size_t bytes = 0;
        const auto cut = [&bytes](size_t n) { return (bytes += (n + 63) / 64 * 64) - (n + 63) / 64 * 64; };
        const size_t x = cut(f * line), delta = cut(2 * f * line), value = cut((slots + inner) * line);
        const size_t below = cut(inner * line), reach = cut(slots * line), path = cut(list), touch = cut(touched);
        memory_ = static_cast<char*>(::operator new(bytes, std::align_val_t(64)));
        const auto floats = [this](size_t at) { return reinterpret_cast<float*>(memory_ + at); };
        const auto ints = [this](size_t at) { return reinterpret_cast<int32_t*>(memory_ + at); };
        scratch = {floats(x), floats(delta), floats(value), ints(below), ints(reach), ints(path), ints(touch)};
    }
    ~Workspace() { ::operator delete(memory_, std::align_val_t(64)); }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    Scratch scratch;

private:
    char* memory_;
};

// Runs worker(next) on the threads; next() hands out first rows of blocks, −1 when none is left.
template <class Worker>
int32_t over_blocks(int64_t rows, int64_t block, int32_t threads, const Worker& worker) {
    std::atomic<int64_t> cursor{0};
    std::atomic<int32_t> status{DCK_OK};
    const auto next = [&]() -> int64_t {
        const int64_t at = cursor.fetch_add(block);
        return at < rows ? at : -1;
    };
    const auto run = [&]() {
        try {
            worker(next);
        } catch (const std::bad_alloc&) {
            status = DCK_NO_MEMORY;
        }
    };
    const int64_t blocks = (rows + block - 1) / block;
    std::vector<std::thread> others;
    try {
        for (int64_t k = 1; k < threads && k < blocks; ++k) others.emplace_back(run);
    } catch (const std::system_error&) {
        // Fewer threads than asked for: the ones there are do the work.
    } catch (const std::bad_alloc&) {
    }
    run();
    for (std::thread& other : others) other.join();
    return status;
}

// The block's gradient, feature by feature, into its rows.
void scatter(const Packed& p, const Scratch& s, int64_t count, int width, int64_t rows, float* out, int64_t d) {
    for (int64_t k = 0; k < count; ++k) {
        float* const column = out + p.columns[s.touched[k]];
        const float* const from = s.delta + k * width;
        for (int64_t r = 0; r < rows; ++r) column[r * d] = from[r];
    }
}

// Row r of the block's gradient into a line that is zero elsewhere, and zeros again: the line stays in the first cache.
// Here `touched` lists columns of X.
void scatter_row(const Scratch& s, int64_t count, int width, int64_t r, float* line) {
    for (int64_t k = 0; k < count; ++k) line[s.touched[k]] = s.delta[k * width + r];
}

void wipe_row(const Scratch& s, int64_t count, float* line) {
    for (int64_t k = 0; k < count; ++k) line[s.touched[k]] = 0.0f;
}

// The steps of the used columns, in compact order.
std::vector<float> compact(const Packed& p, const float* steps) {
    std::vector<float> out(p.features);
    for (int64_t f = 0; f < p.features; ++f) out[f] = steps[p.columns[f]];
    return out;
}

dck::Adam adam_constants(int64_t t, double rate, double beta1, double beta2, double eps) {
    const double first = 1.0 - std::pow(beta1, double(t)), second = 1.0 - std::pow(beta2, double(t));
    return {float(beta1), float(1.0 - beta1), float(beta2), float(1.0 - beta2),
            float(rate / first), float(1.0 / second), float(eps)};
}

float clip_scale(float norm, float clip) { return norm > clip ? clip / norm : 1.0f; }

float noise_amount(float sigma, float clip) { return sigma > 0 ? sigma * clip : 0.0f; }

// ‖g‖ from the nine sums of squares of dck::kSums, in the order of distcondense/kernels/update.py.
float norm_of(const double* a, int64_t stride) {
    const auto s = [=](int k) { return a[k * stride]; };
    return float(std::sqrt(((s(0) + s(4)) + (s(1) + s(5))) + ((s(2) + s(6)) + (s(3) + s(7))) + s(8)));
}

// Eq. 14: the largest of {0.25, …, 2}·σ_base with ‖g‖/(σC) ≥ 1 after clipping. min(norm, clip) instead of a norm
// computed again: at σ = 1 a clipped row sits exactly on the edge, where rounding would toss a coin.
float adaptive_sigma(float norm, double clip, double sigma_base) {
    const double clipped = norm < clip ? norm : clip;
    for (int k = 8; k > 1; --k) {
        const float sigma = float(0.25 * k * sigma_base);
        if (sigma > 0 && clipped >= double(sigma) * clip) return sigma;
    }
    return float(0.25 * sigma_base);
}

// The block of `width` rows that begins at row i, to be fetched ahead; none where i is −1.
dck::Ahead ahead(const float* X, int64_t i, int64_t rows, int64_t d, int64_t width) {
    return i < 0 ? dck::Ahead{nullptr, 0} : dck::Ahead{X + i * d, std::min(width, rows - i)};
}

// take(scratch, count, i, n) with the gradient of every block of n rows from row i on.
template <typename Take>
int32_t over_gradients(const Kernels& k, const Packed& p, const float* X, int64_t rows, int64_t d, const float* steps,
                       int32_t threads, const Take& take) {
    return over_blocks(rows, k.width, threads, [&](const auto& next) {
        Workspace work(p, k.width);
        const std::vector<float> step = compact(p, steps);
        float ones[dck::kMaxWidth];
        double squares[dck::kSums * dck::kMaxWidth];
        std::fill(ones, ones + dck::kMaxWidth, 1.0f);
        for (int64_t i = next(), then; i >= 0; i = then) {
            const int64_t n = std::min<int64_t>(k.width, rows - i);
            then = next();
            const int64_t count = k.gradient(p, X + i * d, n, d, step.data(), ones, ahead(X, then, rows, d, k.width),
                                             work.scratch, squares);
            take(work.scratch, count, i, n);
        }
    });
}

}  // namespace

// The entries of one block of rows each.
struct dck_entries {
    struct Piece {
        std::vector<int32_t> indices;
        std::vector<float> data;
    };
    std::vector<Piece> pieces;
};

namespace {

// The block's gradient without its zeros, row by row; counts[r] is how many row r has.
void append(const Packed& p, const Scratch& s, int64_t count, int width, int64_t rows, dck_entries::Piece& out,
            int64_t* counts) {
    int64_t n = 0;
    std::vector<int32_t> indices(rows * count + 1);
    std::vector<float> data(rows * count + 1);
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t before = n;
        for (int64_t k = 0; k < count; ++k) {  // without a branch: what is zero is written over
            const float g = s.delta[k * width + r];
            indices[n] = p.columns[s.touched[k]], data[n] = g;
            n += g != 0.0f;
        }
        counts[r] = n - before;
    }
    out.indices.assign(indices.begin(), indices.begin() + n);
    out.data.assign(data.begin(), data.begin() + n);
}

}  // namespace

extern "C" {

int32_t dck_abi(void) { return DCK_ABI; }

const char* dck_isa(void) { return isa().name; }

int32_t dck_use_isa(const char* name) {
    for (const Kernels* kernels : kAll) {
        if (std::strcmp(kernels->name, name) == 0 && available(kernels)) {
            chosen.store(kernels);
            return 0;
        }
    }
    return -1;
}

int32_t dck_margins(const dck_ensemble* ensemble, const float* X, int64_t rows, int64_t d, float* out,
                    int32_t threads) {
    const Kernels& k = isa();
    const Packed& p = ensemble->packed;
    return over_blocks(rows, k.width, threads, [&](const auto& next) {
        Workspace work(p, k.width);
        for (int64_t i = next(); i >= 0; i = next()) {
            k.margins(p, X + i * d, std::min<int64_t>(k.width, rows - i), d, work.scratch, out + i);
        }
    });
}

int32_t dck_jacobian(const dck_ensemble* ensemble, const float* X, int64_t rows, int64_t d, const float* steps,
                     float* out, int32_t threads) {
    const Kernels& k = isa();
    const Packed& p = ensemble->packed;
    return over_gradients(k, p, X, rows, d, steps, threads, [&](const Scratch& s, int64_t count, int64_t i, int64_t n) {
        std::memset(out + i * d, 0, n * d * sizeof(float));
        scatter(p, s, count, k.width, n, out + i * d, d);
    });
}

dck_entries* dck_jacobian_csr(const dck_ensemble* ensemble, const float* X, int64_t rows, int64_t d, const float* steps,
                              int64_t* indptr, int32_t threads) {
    const Kernels& k = isa();
    const Packed& p = ensemble->packed;
    std::unique_ptr<dck_entries> out;
    try {
        out = std::make_unique<dck_entries>();
        out->pieces.resize((rows + k.width - 1) / k.width);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    const auto keep = [&](const Scratch& s, int64_t count, int64_t i, int64_t n) {
        append(p, s, count, k.width, n, out->pieces[i / k.width], indptr + i + 1);
    };
    const int32_t status = over_gradients(k, p, X, rows, d, steps, threads, keep);
    if (status != DCK_OK) return nullptr;
    indptr[0] = 0;
    for (int64_t i = 0; i < rows; ++i) indptr[i + 1] += indptr[i];
    return out.release();
}

void dck_take(dck_entries* entries, int32_t* indices, float* data) {
    const std::unique_ptr<dck_entries> owned(entries);
    for (const dck_entries::Piece& piece : owned->pieces) {
        indices = std::copy(piece.indices.begin(), piece.indices.end(), indices);
        data = std::copy(piece.data.begin(), piece.data.end(), data);
    }
}

void dck_bits(uint64_t key, uint32_t stream, uint32_t step, uint32_t row0, int64_t rows, int64_t d, uint32_t* out) {
    for (int64_t i = 0; i < rows; ++i) isa().bits({key, stream, step, uint32_t(row0 + i), 1.0f}, d, out + i * d);
}

void dck_normals(uint64_t key, uint32_t stream, uint32_t step, uint32_t row0, int64_t rows, int64_t d, float* out) {
    for (int64_t i = 0; i < rows; ++i) isa().normals({key, stream, step, uint32_t(row0 + i), 1.0f}, d, out + i * d);
}

int32_t dck_clip_and_noise(float* G, int64_t rows, int64_t d, double clip, const float* sigma, uint64_t key,
                           uint32_t step, uint32_t row0, float* norms, int32_t threads) {
    const Kernels& k = isa();
    return over_blocks(rows, k.width, threads, [&](const auto& next) {
        for (int64_t block = next(); block >= 0; block = next()) {
            for (int64_t i = block; i < std::min<int64_t>(block + k.width, rows); ++i) {
                float* const g = G + i * d;
                double sums[dck::kSums] = {};
                for (int64_t j = 0; j + 8 <= d; j += 8) {
                    for (int q = 0; q < 8; ++q) sums[q] += double(g[j + q]) * double(g[j + q]);
                }
                for (int64_t j = d / 8 * 8; j < d; ++j) sums[8] += double(g[j]) * double(g[j]);
                norms[i] = norm_of(sums, 1);
                k.noise(g, d, clip_scale(norms[i], float(clip)),
                        {key, DCK_NOISE_STREAM, step, uint32_t(row0 + i), noise_amount(sigma[i], float(clip))});
            }
        }
    });
}

int32_t dck_adam(float* X, const float* G, float* m, float* v, int64_t rows, int64_t d, int64_t t, double rate,
                 double beta1, double beta2, double eps, int32_t threads) {
    const Kernels& k = isa();
    const dck::Adam constants = adam_constants(t, rate, beta1, beta2, eps);
    return over_blocks(rows, k.width, threads, [&](const auto& next) {
        for (int64_t i = next(); i >= 0; i = next()) {
            const int64_t cells = std::min<int64_t>(k.width, rows - i) * d, at = i * d;
            k.adam(X + at, G + at, m + at, v + at, cells, constants);
        }
    });
}

int32_t dck_fused_step(const dck_ensemble* ensemble, float* X, const float* dldf, const float* steps, float* m,
                       float* v, int64_t rows, int64_t d, int64_t t, double clip, double sigma_base, double rate,
                       double beta1, double beta2, double eps, uint64_t key, uint32_t step, uint32_t row0,
                       float* norms, float* sigmas, int32_t threads) {
    const Kernels& k = isa();
    const Packed& p = ensemble->packed;
    const dck::Adam constants = adam_constants(t, rate, beta1, beta2, eps);
    return over_blocks(rows, k.width, threads, [&](const auto& next) {
        Workspace work(p, k.width);
        const std::vector<float> step_of = compact(p, steps);
        std::vector<float> g(d);  // zero outside the touched columns, always
        double squares[dck::kSums * dck::kMaxWidth];
        for (int64_t block = next(), then; block >= 0; block = then) {
            const int64_t n = std::min<int64_t>(k.width, rows - block);
            then = next();
            const int64_t count = k.gradient(p, X + block * d, n, d, step_of.data(), dldf + block,
                                             ahead(X, then, rows, d, k.width), work.scratch, squares);
            // From here on `touched` lists columns of X.
            for (int64_t q = 0; q < count; ++q) work.scratch.touched[q] = p.columns[work.scratch.touched[q]];
            for (int64_t r = 0; r < n; ++r) {
                scatter_row(work.scratch, count, k.width, r, g.data());
                const int64_t i = block + r, at = i * d;
                norms[i] = norm_of(squares + r, k.width);
                sigmas[i] = adaptive_sigma(norms[i], clip, sigma_base);
                k.update(X + at, g.data(), m + at, v + at, d, clip_scale(norms[i], float(clip)),
                         {key, DCK_NOISE_STREAM, step, uint32_t(row0 + i), noise_amount(sigmas[i], float(clip))},
                         constants);
            }
            wipe_row(work.scratch, count, g.data());
        }
    });
}

int32_t dck_copy_control(float* X, float* m, float* v, int64_t rows, int64_t d, int32_t threads) {
    static std::atomic<int32_t> zero{0};
    const Kernels& k = isa();
    return over_blocks(rows, k.width, threads, [&](const auto& next) {
        for (int64_t i = next(); i >= 0; i = next()) {
            k.copy(X + i * d, m + i * d, v + i * d, std::min<int64_t>(k.width, rows - i) * d, zero.load());
        }
    });
}

}  // extern "C"
