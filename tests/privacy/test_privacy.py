"""The published method's accounting: what it charges, what it says, and what it never says alone."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

import distcondense as dc
from distcondense.errors import SettingsError
from distcondense.methods.base import Context
from distcondense.methods.published.condense import condense
from distcondense.methods.published.options import PublishedOptions
from distcondense.privacy.budget import check_budget
from distcondense.privacy.statement import Privacy
from distcondense.privacy.steps import StepAccountant, calibrate, in_words

PACKAGE = Path(dc.__file__).parent


def poisson_rdp(q, multiplier, steps, delta):
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(multiplier))
    return rdp.RdpAccountant().compose(dp_accounting.SelfComposedDpEvent(event, steps)).get_epsilon(delta)


def test_epsilon_as_published_is_dp_accountings_composition_step_by_step():
    accountant = StepAccountant(0.05, 1e-5, 100)
    for _ in range(30):
        accountant.spend(2.0)
    first = accountant.epsilon()  # an answer in between must not change the next one
    for multiplier in (2.0, 1.5, 1.5, 3.0):
        accountant.spend(multiplier)
    whole = rdp.RdpAccountant()
    for multiplier, steps in ((2.0, 31), (1.5, 2), (3.0, 1)):
        whole.compose(dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(multiplier)), steps)
    assert first == pytest.approx(poisson_rdp(0.05, 2.0, 30, 1e-5), abs=2e-4)
    assert accountant.epsilon() == pytest.approx(whole.get_epsilon(1e-5), abs=2e-4)
    assert accountant.epsilon() >= whole.get_epsilon(1e-5)
    assert accountant.ledger == [(2.0, 31), (1.5, 2), (3.0, 1)]


@pytest.mark.parametrize(
    ("epsilon", "q", "steps"), [(0.5, 0.02, 200), (2.5, 0.07, 1000), (3.8, 0.71, 300), (1.0, 1.0, 50)]
)
def test_calibrated_noise_stays_within_the_budget_and_wastes_little(epsilon, q, steps):
    sigma_base = calibrate(epsilon=epsilon, delta=1e-5, sampling_rate=q, steps=steps)
    drawn = float(np.float32(0.25 * sigma_base))  # what the kernel really uses
    assert poisson_rdp(q, drawn, steps, 1e-5) <= epsilon
    assert poisson_rdp(q, drawn * 0.98, steps, 1e-5) > epsilon


def test_the_worst_case_is_a_gaussian_with_sensitivity_two_c_root_m_and_no_amplification():
    accountant = StepAccountant(0.01, 1e-5, 4)
    for _ in range(9):
        accountant.spend(100.0)
    mu = math.sqrt(9) * 2 * math.sqrt(4) / 100
    pld = dp_accounting.pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1 / mu))
    assert accountant.worst_case() == pytest.approx(pld.get_epsilon(1e-5), rel=1e-2)
    assert accountant.worst_case() > accountant.epsilon()


def test_a_worst_case_without_meaning_gets_words_not_digits():
    accountant = StepAccountant(0.05, 1e-5, 2000)
    for _ in range(100):
        accountant.spend(1.0)
    assert in_words(accountant.worst_case()) == "over 100"
    assert in_words(12.3456) == "12.3"


def test_affordable_is_the_last_step_within_the_budget():
    accountant = StepAccountant(0.05, 1e-5, 100)
    affordable = accountant.affordable(2.0, 1.0, 10_000)
    assert poisson_rdp(0.05, 2.0, affordable, 1e-5) <= 1.0 < poisson_rdp(0.05, 2.0, affordable + 1, 1e-5) + 1e-4
    assert accountant.affordable(1.0, 1e-3, 10) == 0
    assert accountant.steps == 0


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"epsilon": -1}, {"epsilon": math.inf}, {"delta": 0.0}, {"delta": 1.0}]
)
def test_an_impossible_budget_is_refused(wrong):
    with pytest.raises(SettingsError, match="must be"):
        check_budget(**wrong)


def quick(cohort, **more):
    return dc.condense(cohort, **{"ipc": 10, "steps": 30, "evaluate_every": 10, "threads": 1, **more})


def test_every_epsilon_of_a_published_run_stands_beside_its_guarantee(binary, tmp_path):
    result = quick(binary, method="published", epsilon=2.5, out=tmp_path / "run")
    privacy = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert privacy["guarantee"] == "as-published"
    assert privacy["epsilon"] <= privacy["epsilon_at_last_step"] <= 2.5
    assert privacy["worst_case_epsilon"] == "over 100"
    for text in (result.privacy.short(), result.privacy.paragraph(), result.internal["privacy"]):
        assert "as-published" in text
        assert "over 100" in text
    replayed = rdp.RdpAccountant()
    for entry in privacy["ledger"]:
        event = dp_accounting.GaussianDpEvent(entry["noise_multiplier"])
        replayed.compose(
            dp_accounting.PoissonSampledDpEvent(privacy["parameters"]["sampling_rate"], event), entry["count"]
        )
    assert privacy["epsilon_at_last_step"] == pytest.approx(replayed.get_epsilon(1e-5), abs=2e-4)


def test_a_run_without_noise_is_loud(binary):
    told = []
    result = quick(binary, method="published", noise=False, log=told.append)
    assert result.privacy.guarantee == "none"
    assert result.privacy.epsilon is None
    assert "NO PRIVACY GUARANTEE" in result.privacy.paragraph()
    assert any("NO PRIVACY" in line for line in told)


def test_a_fixed_noise_with_a_budget_stops_at_the_last_affordable_step(binary):
    result = quick(binary, method="published", epsilon=1.0, sigma_base=12.0, steps=500)
    steps = result.privacy.parameters["steps"]
    assert result.internal["stopped"] == "budget"
    assert 0 < steps < 500
    q = result.privacy.parameters["sampling_rate"]
    assert result.privacy.epsilon_at_last_step <= 1.0
    lowest = result.privacy.ledger[-1]["noise_multiplier"]
    assert poisson_rdp(q, lowest, steps + 1, 1e-5) > 1.0 or len(result.privacy.ledger) > 1


def test_a_budget_that_pays_for_no_step_is_refused(binary):
    from distcondense.errors import BudgetError

    with pytest.raises(BudgetError, match="at least one step"):
        quick(binary, method="published", epsilon=0.01, sigma_base=0.5)


def test_an_inferred_schema_is_named_in_the_statement():
    paragraph = Privacy(
        "as-published",
        "published",
        1.0,
        1e-5,
        "row",
        "os",
        epsilon_at_last_step=1.0,
        worst_case_epsilon="over 100",
        schema_origin="inferred",
    ).paragraph()
    assert "inferred from the patients" in paragraph


@pytest.mark.filterwarnings("ignore:the noise of this ε is louder")  # of so few steps
def test_two_runs_with_one_seed_draw_different_noise_and_one_key_repeats_it(binary):
    said = {"ipc": 10, "steps": 4, "evaluate_every": 4, "epsilon": 2.5}
    runs = [
        condense(binary, PublishedOptions(noise_key=key, **said), Context(threads=1)).frame
        for key in (None, None, 11, 11)
    ]
    assert not runs[0].equals(runs[1])
    assert runs[2].equals(runs[3])


def test_privacy_imports_only_numpy_scipy_dp_accounting_opendp_and_the_rooms_below_it():
    allowed = {"numpy", "scipy", "dp_accounting", "opendp", "absl"}
    allowed |= {
        "distcondense.errors",
        "distcondense.arrays",
        "distcondense.kernels",
        "distcondense.outside",
        "distcondense.privacy",
    }
    import sys

    for path in (PACKAGE / "privacy").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in names:
                good = name.split(".")[0] in sys.stdlib_module_names or any(
                    name == a or name.startswith(a + ".") for a in allowed
                )
                assert good, f"{path.name} imports {name}"
