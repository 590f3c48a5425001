// ensemble.cpp: TreeEnsemble checked and packed for the two ways of walk.cpp.
#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "distcondense.h"

namespace dck {
namespace {

constexpr int32_t kLanes = 1, kWalk = 2;

// Owns what Packed points to.
struct Storage : dck_ensemble {
    std::vector<Tree> trees;
    std::vector<Node> nodes;
    std::vector<float> leaves;
    std::vector<Again> again;
    std::vector<Nested> nested;
    std::vector<WalkNode> walk;
    std::vector<int32_t> columns, lines;
};

struct Source {
    const int32_t* feature;
    const float* threshold;
    const int32_t* left;
    const uint8_t* default_left;
    int64_t nodes, n_features;
};

// The tree's nodes in breadth-first order (siblings stay adjacent); false where it is not a tree.
bool breadth_first(const Source& in, int32_t root, std::vector<uint8_t>& seen, std::vector<int32_t>& order) {
    order.clear();
    if (root < 0 || root >= in.nodes || seen[root]++) return false;
    order.push_back(root);
    for (size_t k = 0; k < order.size(); ++k) {
        const int32_t v = order[k], left = in.left[v];
        if (in.feature[v] < 0) continue;
        if (in.feature[v] >= in.n_features || left < 0 || int64_t(left) + 1 >= in.nodes) return false;
        if (seen[left]++ || seen[left + 1]++) return false;
        order.push_back(left);
        order.push_back(left + 1);
    }
    return true;
}

// One tree while it is packed: the position of a node in breadth-first order stands for the node.
struct Shape {
    std::vector<int32_t> order, left, parent, depth, slot, compact;  // left: position of the left child, or −1
    std::vector<int32_t> inner, leaves;                              // in the order of their slots
    int32_t boughs, bough_leaves;

    void read(const Source& in, const std::vector<int32_t>& compact_of) {
        const size_t n = order.size();
        left.assign(n, -1), parent.assign(n, -1), depth.assign(n, 0), slot.assign(n, 0), compact.assign(n, -1);
        int32_t next = 1;
        for (size_t k = 0; k < n; ++k) {
            if (in.feature[order[k]] < 0) continue;
            compact[k] = compact_of[in.feature[order[k]]];
            left[k] = next;
            for (int32_t child = next; child < next + 2; ++child) parent[child] = int32_t(k), depth[child] = depth[k] + 1;
            next += 2;
        }
        const auto is_twig = [this](int32_t k) { return left[left[k]] < 0 && left[left[k] + 1] < 0; };
        std::vector<int32_t> twigs;
        inner.clear(), leaves.clear();
        for (int32_t k = 0; k < int32_t(n); ++k) {
            if (left[k] >= 0) (is_twig(k) ? twigs : inner).push_back(k);
            else if (parent[k] < 0 || !is_twig(parent[k])) leaves.push_back(k);
        }
        boughs = int32_t(inner.size()), bough_leaves = int32_t(leaves.size());
        for (int32_t k : twigs) inner.push_back(k), leaves.push_back(left[k]), leaves.push_back(left[k] + 1);
        for (size_t k = 0; k < inner.size(); ++k) slot[inner[k]] = int32_t(k);
        for (size_t k = 0; k < leaves.size(); ++k) slot[leaves[k]] = int32_t(inner.size() + k);
    }

    // Features that some path tests twice, ascending.
    std::vector<int32_t> nested() const {
        std::vector<int32_t> found;
        for (int32_t k : inner) {
            for (int32_t up = parent[k]; up >= 0; up = parent[up]) {
                if (compact[up] == compact[k]) {
                    found.push_back(compact[k]);
                    break;
                }
            }
        }
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }

    // Nodes whose leaf can change when the feature moves, children first.
    void again(int32_t feature, std::vector<Again>& out) const {
        std::vector<uint8_t> changes(order.size(), 0);
        const int32_t slots = int32_t(order.size());
        for (size_t i = inner.size(); i-- > 0;) {
            const int32_t k = inner[i], l = left[k], r = left[k] + 1;
            if (compact[k] != feature && !changes[l] && !changes[r]) continue;
            changes[k] = 1;
            out.push_back({uint16_t(slot[k]), uint16_t(slot[l] + (changes[l] ? slots : 0)),
                           uint16_t(slot[r] + (changes[r] ? slots : 0)), uint16_t(compact[k] == feature)});
        }
    }
};

void add_lanes(const Source& in, const Shape& shape, const std::vector<int32_t>& nested,
               const std::vector<Again>& again, const std::vector<int32_t>& again_end, Storage& out) {
    Tree tree{int32_t(shape.inner.size()), int32_t(shape.order.size()), int32_t(out.nodes.size()),
              int32_t(out.leaves.size()), int32_t(out.nested.size()), 0, shape.boughs, shape.bough_leaves};
    for (int32_t k : shape.inner) {
        const int32_t v = shape.order[k];
        const bool twice = std::binary_search(nested.begin(), nested.end(), shape.compact[k]);
        out.nodes.push_back({in.threshold[v], shape.compact[k], uint16_t(shape.slot[shape.left[k]]),
                             uint16_t(shape.slot[shape.left[k] + 1]), uint16_t(in.default_left[v] != 0), uint16_t(twice)});
    }
    for (int32_t k : shape.leaves) out.leaves.push_back(in.threshold[shape.order[k]]);
    const int32_t first = int32_t(out.again.size());
    for (size_t k = 0; k < nested.size(); ++k) {
        out.nested.push_back({nested[k], first + (k ? again_end[k - 1] : 0), first + again_end[k]});
    }
    out.again.insert(out.again.end(), again.begin(), again.end());
    tree.nested_last = int32_t(out.nested.size());
    out.packed.max_slots = std::max(out.packed.max_slots, tree.slots);
    out.packed.max_inner = std::max(out.packed.max_inner, tree.inner);
    out.trees.push_back(tree);
}

void add_walk(const Source& in, const Shape& shape, Storage& out) {
    const int32_t first = int32_t(out.walk.size());
    for (size_t k = 0; k < shape.order.size(); ++k) {
        const int32_t v = shape.order[k];
        out.walk.push_back({in.threshold[v], shape.compact[k], first + shape.left[k], in.default_left[v] != 0});
    }
    out.packed.max_path = std::max(out.packed.max_path, *std::max_element(shape.depth.begin(), shape.depth.end()));
    out.trees.push_back({-1, 0, first, 0, 0, 0, 0, 0});
}

void add_tree(const Source& in, const Shape& shape, int32_t way, Storage& out) {
    constexpr size_t kMostSlots = 65536;  // of the 16-bit slot numbers, moved ones included
    if (way == kWalk || shape.order.size() + shape.inner.size() > kMostSlots) return add_walk(in, shape, out);
    const std::vector<int32_t> nested = shape.nested();
    // Tenths of a nanosecond a row, measured on Zen 3 (AVX2): a whole evaluation against a walk with its flips.
    const int64_t depth = *std::max_element(shape.depth.begin(), shape.depth.end());
    const int64_t whole = 13 * int64_t(shape.inner.size()), walked = 70 * depth * depth;
    if (way != kLanes && whole > walked) return add_walk(in, shape, out);
    std::vector<Again> again;
    std::vector<int32_t> again_end;
    for (int32_t feature : nested) {
        shape.again(feature, again);
        again_end.push_back(int32_t(again.size()));
        if (way != kLanes && whole + 3 * int64_t(again.size()) > walked) return add_walk(in, shape, out);
    }
    add_lanes(in, shape, nested, again, again_end, out);
}

bool pack(const Source& in, const int32_t* roots, int64_t trees, int32_t way, Storage& out) {
    std::vector<uint8_t> seen(in.nodes, 0), used(in.n_features, 0);
    Shape shape;
    for (int64_t t = 0; t < trees; ++t) {
        if (!breadth_first(in, roots[t], seen, shape.order)) return false;
        for (int32_t v : shape.order) {
            if (in.feature[v] >= 0) used[in.feature[v]] = 1;
        }
    }
    std::vector<int32_t> compact_of(in.n_features, -1);
    for (int64_t j = 0; j < in.n_features; ++j) {
        if (!used[j]) continue;
        compact_of[j] = int32_t(out.columns.size());
        out.columns.push_back(int32_t(j));
        // Nearer ones are on the same line, as good as always.
        if (out.lines.empty() || j - out.lines.back() >= 4) out.lines.push_back(int32_t(j));
    }
    if (8 * int64_t(out.lines.size()) > in.n_features) {  // so close together that every line has some
        out.lines.clear();
        for (int64_t j = 0; j < in.n_features; j += 16) out.lines.push_back(int32_t(j));
    }
    std::fill(seen.begin(), seen.end(), 0);
    for (int64_t t = 0; t < trees; ++t) {
        breadth_first(in, roots[t], seen, shape.order);
        shape.read(in, compact_of);
        add_tree(in, shape, way, out);
    }
    return true;
}

}  // namespace
}  // namespace dck

extern "C" dck_ensemble* dck_pack(const int32_t* feature, const float* threshold, const int32_t* left,
                                  const uint8_t* default_left, int64_t nodes, const int32_t* roots, int64_t trees,
                                  float base, int32_t sigmoid, int64_t n_features, int32_t way, int32_t* status) {
    *status = DCK_NO_MEMORY;
    try {
        auto out = std::make_unique<dck::Storage>();
        const dck::Source in{feature, threshold, left, default_left, nodes, n_features};
        if (!dck::pack(in, roots, trees, way, *out)) {
            *status = DCK_NOT_A_FOREST;
            return nullptr;
        }
        dck::Packed& p = out->packed;
        p.trees = out->trees.data(), p.nodes = out->nodes.data(), p.leaves = out->leaves.data();
        p.again = out->again.data(), p.nested = out->nested.data(), p.walk = out->walk.data();
        p.columns = out->columns.data(), p.lines = out->lines.data(), p.n_lines = int64_t(out->lines.size());
        p.n_trees = trees, p.features = int64_t(out->columns.size());
        p.base = base, p.sigmoid = sigmoid != 0;
        *status = DCK_OK;
        return out.release();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

extern "C" void dck_free(dck_ensemble* ensemble) { delete static_cast<dck::Storage*>(ensemble); }
