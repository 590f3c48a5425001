"""The Numba kernels against the oracles of naive.py: walk, clip-and-noise, Adam, batches, the fused step."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcondense.errors import SettingsError
from distcondense.kernels import fused, perturbation, update, walk
from distcondense.kernels.fused import fused_step
from distcondense.kernels.update import AdamState, NoiseRule
from tests import naive

SEEDS = st.integers(0, 2**32 - 1)
KEY = 0xFEDC_BA98_7654_3210
FAST = settings(deadline=None, max_examples=15 if numba.config.DISABLE_JIT else 60)


def gradients(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    """Rows of very different lengths, one of them zero."""
    G = rng.normal(size=(m, d)) * rng.choice([1e-3, 0.1, 1, 30], size=(m, 1))
    G[rng.integers(m)] = 0
    return G.astype(np.float32)


@FAST
@given(seed=SEEDS, m=st.integers(1, 6), d=st.integers(1, 9), trees=st.integers(0, 5), depth=st.integers(1, 12))
def test_margins_and_scores_are_those_of_the_oracle(seed, m, d, trees, depth):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth)
    X = naive.grid_rows(rng, m, d, missing=0.2)
    np.testing.assert_allclose(walk.margins(ensemble, X), [naive.margin(ensemble, x) for x in X], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(walk.scores(ensemble, X), [naive.score(ensemble, x) for x in X], rtol=1e-6)


@FAST
@given(
    seed=SEEDS,
    m=st.integers(1, 5),
    d=st.integers(1, 9),
    trees=st.integers(0, 5),
    depth=st.integers(1, 12),
    link=st.sampled_from(["sigmoid", "identity"]),
    missing=st.sampled_from([0.0, 0.3]),
    few=st.booleans(),
)
@example(seed=0, m=1, d=1, trees=1, depth=1, link="sigmoid", missing=0.0, few=False)  # a stump
@example(seed=1, m=2, d=9, trees=3, depth=12, link="identity", missing=0.3, few=True)  # one feature all the way down
def test_the_sparse_walk_is_the_finite_difference(seed, m, d, trees, depth, link, missing, few):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth, link=link, features=min(d, 2) if few else d)
    X, steps = naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)
    J = walk.jacobian(ensemble, X, steps)
    assert J.dtype == np.float32
    np.testing.assert_allclose(J, naive.jacobian(ensemble, X, steps), rtol=1e-6, atol=1e-9)
    assert (J[np.isnan(X)] == 0).all()


def test_the_cases_above_do_land_on_thresholds_and_repeat_features():
    # guards the generator: without exact hits and repeats the property tests would prove little
    rng = np.random.default_rng(0)
    ensemble = naive.random_ensemble(rng, d=4, trees=20, depth=6, features=2)
    X, steps = naive.grid_rows(rng, 20, 4), naive.grid_steps(rng, 4)
    cuts = [set(ensemble.threshold[ensemble.feature == j].tolist()) for j in range(4)]
    hits = sum(float(X[i, j] + steps[j]) in cuts[j] for i in range(20) for j in range(4))
    assert hits > 10
    assert np.count_nonzero(naive.jacobian(ensemble, X, steps)) > 20
    assert walk.depth_of(ensemble.left, ensemble.roots) == 6


@pytest.mark.parametrize("threads", [2, 3, 64])
def test_any_number_of_threads_gives_the_same_bits(threads):
    rng = np.random.default_rng(5)
    ensemble = naive.random_ensemble(rng, d=40, trees=30, depth=5)
    X, steps = rng.normal(size=(33, 40)).astype(np.float32), rng.uniform(0.025, 2, 40).astype(np.float32)
    G = gradients(rng, 33, 40)
    np.testing.assert_array_equal(walk.jacobian(ensemble, X, steps, threads), walk.jacobian(ensemble, X, steps, 1))
    np.testing.assert_array_equal(walk.scores(ensemble, X, threads), walk.scores(ensemble, X, 1))
    one, many = G.copy(), G.copy()
    update.clip_and_noise(one, 1.0, 0.5, KEY, 3, 0, 1)
    update.clip_and_noise(many, 1.0, 0.5, KEY, 3, 0, threads)
    np.testing.assert_array_equal(many, one)
    results = []
    for count in (1, threads):
        Y, state = X.copy(), AdamState.zeros(X.shape)
        fused_step(ensemble, Y, G[:, 0], steps, state, NoiseRule(1.0, 0.5), 0.01, key=KEY, threads=count)
        results.append((Y, state.m, state.v))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@FAST
@given(seed=SEEDS, m=st.integers(1, 5), d=st.integers(1, 40))
def test_row_norms_are_euclidean(seed, m, d):
    G = gradients(np.random.default_rng(seed), m, d)
    np.testing.assert_allclose(update.row_norms(G), np.linalg.norm(G.astype(np.float64), axis=1), rtol=1e-6)


@FAST
@given(seed=SEEDS, m=st.integers(1, 4), d=st.integers(1, 13), clip=st.sampled_from([0.01, 0.5, 1.0, 100.0]))
def test_clip_and_noise_are_the_formula(seed, m, d, clip):
    rng = np.random.default_rng(seed)
    G = gradients(rng, m, d)
    sigmas = rng.choice([0.0, 0.25, 1.5], m).astype(np.float32)
    expected = naive.clip_and_noise(G, clip, sigmas, KEY, 4, 1000)
    norms = update.clip_and_noise(fast := G.copy(), clip, sigmas, KEY, 4, 1000)
    np.testing.assert_allclose(fast, expected, rtol=1e-5, atol=3e-6 * clip)
    np.testing.assert_allclose(norms, np.linalg.norm(G.astype(np.float64), axis=1), rtol=1e-6)


def test_clipping_leaves_short_rows_alone_and_shortens_long_ones_to_c():
    G = np.array([[0.3, 0.4], [3, 4], [0, 0]], np.float32)
    update.clip_and_noise(G, 1.0, 0.0, KEY, 0)
    np.testing.assert_array_equal(G[0], np.float32([0.3, 0.4]))
    np.testing.assert_allclose(G[1], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(G[2], [0, 0])


def test_shards_of_rows_take_the_noise_of_the_whole():
    G = gradients(np.random.default_rng(1), 10, 7)
    whole, top, bottom = G.copy(), G[:4].copy(), G[4:].copy()
    update.clip_and_noise(whole, 1.0, 0.5, KEY, 9, 100)
    update.clip_and_noise(top, 1.0, 0.5, KEY, 9, 100)
    update.clip_and_noise(bottom, 1.0, 0.5, KEY, 9, 104)
    np.testing.assert_array_equal(np.vstack((top, bottom)), whole)


@FAST
@given(norm=st.floats(0, 10, width=32), clip=st.sampled_from([0.5, 1.0, 2.0]), base=st.sampled_from([0.0, 0.25, 1, 4]))
@example(norm=0.5, clip=1.0, base=1.0)  # exactly on a rung
@example(norm=7.0, clip=1.0, base=0.5)  # the clipped norm counts, not the norm
def test_the_noise_ladder_is_the_papers(norm, clip, base):
    assert NoiseRule(clip, base).sigmas([norm])[0] == np.float32(naive.sigma(norm, clip, base))


def test_the_noise_ladder_on_paper():
    sigmas = NoiseRule(clip=2.0, sigma_base=0.8).sigmas([0.0, 0.3, 0.4, 0.79, 0.81, 1.7, 50.0])
    # rungs 0.2 … 1.6; the largest σ with min(norm, 2)/(2σ) ≥ 1
    np.testing.assert_allclose(sigmas, [0.2, 0.2, 0.2, 0.2, 0.4, 0.8, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    "rule", [{"clip": 0}, {"clip": float("nan")}, {"clip": 1, "sigma_base": -1}, {"clip": np.inf, "sigma_base": 1}]
)
def test_a_noise_rule_without_meaning_is_refused(rule):
    with pytest.raises(SettingsError):
        NoiseRule(**rule)


@FAST
@given(seed=SEEDS, m=st.integers(1, 4), d=st.integers(1, 12), rate=st.sampled_from([1e-3, 0.1]))
def test_adam_is_the_formula_over_several_steps(seed, m, d, rate):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d)).astype(np.float32)
    state, slow = AdamState.zeros((m, d)), (X.astype(np.float64), np.zeros((m, d)), np.zeros((m, d)))
    for t in range(1, 5):
        G = gradients(rng, m, d)
        update.adam(X, G, state, rate, 0.9, 0.999)
        slow = naive.adam(slow[0], G, slow[1], slow[2], t, rate, 0.9, 0.999)
        assert state.step == t
        np.testing.assert_allclose(X, slow[0], rtol=1e-5, atol=2e-5 * rate)
        np.testing.assert_allclose(state.m, slow[1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(state.v, slow[2], rtol=1e-4, atol=1e-6)


@FAST
@given(
    seed=SEEDS,
    m=st.integers(1, 5),
    d=st.integers(1, 20),
    depth=st.integers(1, 6),
    base=st.sampled_from([0.0, 0.5]),
    clip=st.sampled_from([0.05, 1.0]),
    missing=st.sampled_from([0.0, 0.2]),
)
def test_the_fused_step_has_the_bits_of_its_parts(seed, m, d, depth, base, clip, missing):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=6, depth=depth)
    X = naive.grid_rows(rng, m, d, missing=missing)
    whole, parts = (X.copy(), AdamState.zeros(X.shape)), (X.copy(), AdamState.zeros(X.shape))
    rule = NoiseRule(clip, base)
    for step in range(3):
        steps, dldf = naive.grid_steps(rng, d), rng.normal(size=m).astype(np.float32)
        norms, sigmas = fused_step(ensemble, whole[0], dldf, steps, whole[1], rule, 0.3, (0.9, 0.99), KEY, step, 50, 1)
        G = dldf[:, None] * walk.jacobian(ensemble, parts[0], steps)
        np.testing.assert_array_equal(sigmas, rule.sigmas(update.row_norms(G)))
        np.testing.assert_array_equal(norms, update.clip_and_noise(G, clip, sigmas, KEY, step, 50))
        update.adam(parts[0], G, parts[1], 0.3, 0.9, 0.99)
        for a, b in zip((whole[0], whole[1].m, whole[1].v), (parts[0], parts[1].m, parts[1].v), strict=True):
            np.testing.assert_array_equal(a, b)
        assert whole[1].step == parts[1].step == step + 1


@settings(deadline=None, max_examples=8 if numba.config.DISABLE_JIT else 25)
@given(seed=SEEDS, base=st.sampled_from([0.0, 0.5]))
def test_the_fused_step_is_the_paper(seed, base):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=7, trees=4, depth=4)
    X, steps = naive.grid_rows(rng, 3, 7), naive.grid_steps(rng, 7)
    dldf = rng.normal(size=3).astype(np.float32)
    m, v = rng.normal(size=(3, 7)).astype(np.float32), rng.uniform(0.1, 1, (3, 7)).astype(np.float32)
    slow = naive.fused_step(ensemble, X, dldf, steps, m, v, 6, 0.5, base, 0.1, (0.9, 0.999), KEY, 2, 8)
    state = AdamState(m.copy(), v.copy(), step=5)
    fast = X.copy()
    norms, sigmas = fused_step(ensemble, fast, dldf, steps, state, NoiseRule(0.5, base), 0.1, (0.9, 0.999), KEY, 2, 8)
    for a, b in zip((fast, state.m, state.v, norms, sigmas), slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_without_noise_untouched_columns_still_decay():
    ensemble = naive.random_ensemble(np.random.default_rng(0), d=5, trees=3, depth=2, features=1)
    X, state = np.zeros((2, 5), np.float32), AdamState(np.ones((2, 5), np.float32), np.ones((2, 5), np.float32), 1)
    fused_step(ensemble, X, np.ones(2), np.ones(5), state, NoiseRule(1.0), 0.1)
    np.testing.assert_allclose(state.m[:, 1:], 0.9, rtol=1e-6)
    assert (X[:, 1:] < 0).all()


@pytest.mark.parametrize(
    "broken", [lambda X: X.astype(np.float64), lambda X: X.T.copy().T, lambda X: X[:, :3], lambda X: X[::2]]
)
def test_arrays_that_cannot_be_changed_in_place_are_refused(broken):
    ensemble = naive.random_ensemble(np.random.default_rng(0), d=4, trees=1, depth=1)
    X = broken(np.zeros((6, 4), np.float32))
    with pytest.raises(SettingsError, match="X"):
        fused_step(ensemble, X, np.ones(6), np.ones(4), AdamState.zeros((6, 4)), NoiseRule(1.0), 0.1)
    with pytest.raises(SettingsError):
        update.adam(X, np.zeros((6, 4), np.float32), AdamState.zeros((6, 4)), 0.1)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="NUMBA_DISABLE_JIT is set: nothing is compiled")
def test_read_only_and_unpickled_arrays_meet_the_same_compiled_code():
    rng = np.random.default_rng(0)
    ensemble = naive.random_ensemble(rng, d=4, trees=2, depth=2)
    X, steps, state = naive.grid_rows(rng, 3, 4), naive.grid_steps(rng, 4), AdamState.zeros((3, 4))

    def everything(trees, rows, eps, dldf):
        walk.jacobian(trees, rows, eps)
        update.row_norms(rows)
        fused_step(trees, rows.copy(), dldf, eps, state, NoiseRule(1.0, 1.0), 0.1)

    kernels = (walk._jacobian, walk.depth_of, update._norms, fused._fused)
    everything(ensemble, X, steps, np.ones(3, np.float32))
    compiled = [len(kernel.signatures) for kernel in kernels]
    frozen = [array.copy() for array in (X, steps, np.ones(3, np.float32))]
    for array in frozen:
        array.flags.writeable = False
    everything(pickle.loads(pickle.dumps(ensemble)), *frozen)
    assert [len(kernel.signatures) for kernel in kernels] == compiled


def test_no_threads_is_refused():
    with pytest.raises(SettingsError, match="threads"):
        update.row_norms(np.ones((2, 2), np.float32), threads=0)


@FAST
@given(seed=SEEDS, m=st.integers(1, 7), d=st.integers(1, 6), budget=st.integers(1, 2000))
def test_batches_are_copies_with_one_column_moved_and_stay_in_the_budget(seed, m, d, budget):
    rng = np.random.default_rng(seed)
    X, steps = rng.normal(size=(m, d)).astype(np.float32), rng.uniform(0.1, 2, d).astype(np.float32)
    columns = np.flatnonzero(rng.random(d) < 0.7)
    seen = np.zeros((m, d), int)
    shape = perturbation.plan(m, d, len(columns), 4, budget)
    for rows, at, block, batch in perturbation.perturbed(X, steps, columns, shape=shape, dtype=np.float32):
        np.testing.assert_array_equal(block, columns[at : at + len(block)])
        assert batch.nbytes <= max(budget, 2 * d * 4)
        for c, j in enumerate(block):
            up, down = X[rows].copy(), X[rows].copy()
            up[:, j] += steps[j]
            down[:, j] -= steps[j]
            np.testing.assert_array_equal(batch[2 * c], up)
            np.testing.assert_array_equal(batch[2 * c + 1], down)
            seen[rows, j] += 1
    np.testing.assert_array_equal(seen, np.isin(np.arange(d), columns) * np.ones((m, 1), int))


def test_importing_the_kernels_package_does_not_import_numba():
    code = "import sys, distcondense.kernels, distcondense.models.jacobian; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@FAST
@given(
    seed=SEEDS,
    m=st.integers(0, 7),
    d=st.integers(1, 40),
    trees=st.integers(0, 5),
    depth=st.integers(0, 8),
    link=st.sampled_from(["sigmoid", "identity"]),
    missing=st.sampled_from([0.0, 0.3]),
    threads=st.integers(1, 3),
)
@example(seed=3, m=7, d=3000, trees=5, depth=5, link="sigmoid", missing=0.0, threads=2)  # few columns of many
def test_the_sparse_answer_is_the_dense_one_without_its_zeros(seed, m, d, trees, depth, link, missing, threads):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth, link=link)
    X, steps = naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)
    naive.assert_sparse_is_dense(walk.jacobian_csr(ensemble, X, steps, threads), walk.jacobian(ensemble, X, steps))


def test_compact_trees_give_the_same_scores_from_their_own_columns_and_are_not_pickled():
    rng = np.random.default_rng(8)
    ensemble = naive.random_ensemble(rng, d=50, trees=4, depth=3)
    X = naive.grid_rows(rng, 6, 50)
    assert len(ensemble.used) == ensemble.compact.n_features < 50
    np.testing.assert_array_equal(walk.scores(ensemble.compact, X[:, ensemble.used]), walk.scores(ensemble, X))
    assert "compact" not in vars(pickle.loads(pickle.dumps(ensemble)))
