// driver.cpp: every kernel on awkward sizes, to be built with -fsanitize=address,undefined (or thread) and run clean.
//
// It also demands equal bits from every instruction set, both ways of walking and any number of threads. Exit 0: clean.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "distcondense.h"

namespace {

using Floats = std::vector<float>;

struct Forest {
    std::vector<int32_t> feature, left, roots;
    Floats threshold;
    std::vector<uint8_t> default_left;

    int32_t leaf(std::mt19937& rng) {
        feature.push_back(-1), left.push_back(-1), default_left.push_back(rng() % 2);
        threshold.push_back(float(rng() % 200) / 100 - 1);
        return int32_t(feature.size()) - 1;
    }

    // Siblings adjacent; some branches end early. Thresholds on the grid ¼ℤ, as the rows are.
    void grow(int32_t node, int depth, int d, std::mt19937& rng) {
        if (depth == 0 || (depth < 4 && rng() % 8 == 0)) return;
        const int32_t l = leaf(rng), r = leaf(rng);
        feature[node] = int32_t(rng() % d), left[node] = l, threshold[node] = float(int(rng() % 13) - 6) / 4;
        grow(l, depth - 1, d, rng);
        if (depth < 8 || rng() % 3) grow(r, depth - 1, d, rng);
    }
};

struct Free {
    void operator()(dck_ensemble* ensemble) const { dck_free(ensemble); }
};
using Handle = std::unique_ptr<dck_ensemble, Free>;

Handle pack(const Forest& f, int64_t d, int way, int32_t* status) {
    return Handle(dck_pack(f.feature.data(), f.threshold.data(), f.left.data(), f.default_left.data(),
                           int64_t(f.feature.size()), f.roots.data(), int64_t(f.roots.size()), 0.25f, 1, d, way, status));
}

// Everything the kernels write for one case, end to end.
Floats run(const Forest& forest, const Floats& X0, int64_t rows, int64_t d, const Floats& steps, int way, int threads) {
    int32_t status = -1;
    const Handle ensemble = pack(forest, d, way, &status);
    Floats X = X0, margins(rows), J(rows * d), G(rows * d, 0.5f), m(rows * d), v(rows * d), z(rows * d);
    Floats norms(rows), sigmas(rows), sigma(rows, 0.75f), dldf(rows, 0.01f);
    std::vector<uint32_t> words(rows * d);
    status |= dck_margins(ensemble.get(), X.data(), rows, d, margins.data(), threads);
    status |= dck_jacobian(ensemble.get(), X.data(), rows, d, steps.data(), J.data(), threads);
    std::vector<int64_t> indptr(rows + 1);
    dck_entries* const entries =
        dck_jacobian_csr(ensemble.get(), X.data(), rows, d, steps.data(), indptr.data(), threads);
    std::vector<int32_t> columns(indptr[rows]);
    Floats sparse(indptr[rows]), again(rows * d);
    dck_take(entries, columns.data(), sparse.data());
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = indptr[i]; k < indptr[i + 1]; ++k) again[i * d + columns[k]] = sparse[k];
    }
    status |= again != J;
    dck_bits(77, 1, 2, 3, rows, d, words.data());
    dck_normals(77, 1, 2, 3, rows, d, z.data());
    status |= dck_clip_and_noise(G.data(), rows, d, 1.0, sigma.data(), 99, 4, 5, norms.data(), threads);
    status |= dck_adam(X.data(), G.data(), m.data(), v.data(), rows, d, 1, 0.001, 0.9, 0.999, 1e-8, threads);
    for (int t = 2; t < 5; ++t) {
        status |= dck_fused_step(ensemble.get(), X.data(), dldf.data(), steps.data(), m.data(), v.data(), rows, d, t,
                                 0.02, t == 3 ? 0.0 : 0.5, 0.001, 0.9, 0.999, 1e-8, 99, uint32_t(t), 5, norms.data(),
                                 sigmas.data(), threads);
    }
    status |= dck_copy_control(X.data(), m.data(), v.data(), rows, d, threads);
    if (status != DCK_OK) std::printf("status %d\n", status);
    Floats all;
    for (const Floats* part : {&X, &margins, &J, &G, &m, &v, &z, &norms, &sigmas}) {
        all.insert(all.end(), part->begin(), part->end());
    }
    all.push_back(float(status));
    return all;
}

bool same(const Floats& a, const Floats& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

int main() {
    int failures = 0, cases = 0;
    const int64_t shapes[][2] = {{1, 1}, {1, 7}, {3, 33}, {8, 64}, {9, 31}, {17, 600}, {2, 2932}};
    for (int depth = 0; depth <= 12; ++depth) {
        for (const auto& shape : shapes) {
            std::mt19937 rng(uint32_t(1000 * depth + shape[1]));
            const int64_t rows = shape[0], d = shape[1];
            Forest forest;
            for (int t = 0; t < 3; ++t) {
                forest.roots.push_back(forest.leaf(rng));
                forest.grow(forest.roots.back(), depth, int(d), rng);
            }
            Floats X(rows * d), steps(d);
            for (float& x : X) x = rng() % 10 ? float(int(rng() % 17) - 8) / 4 : NAN;
            for (float& step : steps) step = float(1 + rng() % 8) / 4;
            dck_use_isa("portable");
            const Floats expected = run(forest, X, rows, d, steps, 2, 1);
            if (expected.back() != 0) ++failures;
            for (const char* isa : {"portable", "avx2", "avx512"}) {
                if (dck_use_isa(isa) != 0) continue;
                for (int way = 0; way < 3; ++way) {
                    const int threads = 1 + (way + depth) % 3;
                    ++cases;
                    if (same(run(forest, X, rows, d, steps, way, threads), expected)) continue;
                    ++failures;
                    std::printf("depth %d, %d x %d, %s, way %d, %d threads: other bits\n", depth, int(rows), int(d), isa,
                                way, threads);
                }
            }
        }
    }
    // What is no forest is refused, not read.
    Forest broken;
    std::mt19937 rng(1);
    broken.roots.push_back(broken.leaf(rng));
    broken.grow(0, 3, 4, rng);
    int32_t status = DCK_OK;
    broken.left[0] = 0;  // its own child
    if (pack(broken, 4, 0, &status) || status != DCK_NOT_A_FOREST) ++failures, std::printf("a loop was taken\n");
    broken.left[0] = int32_t(broken.left.size());
    if (pack(broken, 4, 0, &status) || status != DCK_NOT_A_FOREST) ++failures, std::printf("a far child was taken\n");
    std::printf("%d cases, %d failures\n", cases, failures);
    return failures ? 1 : 0;
}
