"""Options: each method takes its own and refuses others by name; old words, NumPy's numbers, ranges, the horizon."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.outcome import Goal
from distcondense.data.schema import Column, Schema
from distcondense.errors import SchemaError, SettingsError
from distcondense.methods.base import default_method, method_named, methods, options_of, prepare
from distcondense.methods.private import METHOD as PRIVATE
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.published import METHOD as PUBLISHED
from distcondense.methods.published.options import PublishedOptions
from tests.conftest import SMALL_SCHEMA, small_frame

OWN = {method.name: {entry.name for entry in fields(method.Options)} for method in methods()}
FOREIGN = [
    (name, setting, other)
    for name in ("private", "published")
    for other in ("private", "published")
    for setting in sorted(OWN[other] - OWN[name])
]


# -- whose setting is it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "setting", "other"), FOREIGN)
def test_a_setting_of_another_method_is_refused_with_that_method_s_name(name: str, setting: str, other: str) -> None:
    with pytest.raises(SettingsError) as error:
        options_of(method_named(name), {setting: 1})
    message = str(error.value)
    assert f"method {name}: takes only settings of its own. Found {setting}" in message
    assert f"{setting} belongs to method {other}" in message


@pytest.mark.parametrize("setting", ["holdout", "rows_per_person", "horizon", "trust_inferred_schema"])
def test_published_no_longer_takes_what_it_would_ignore(binary: Cohort, setting: str) -> None:
    with pytest.raises(SettingsError, match=f"Found {setting}. .*belongs to method private"):
        dc.condense(binary, method="published", epsilon=2.0, **{setting: 1})


@pytest.mark.parametrize(
    ("name", "wrong", "near"),
    [
        ("private", "epsilom", "epsilon"),
        ("private", "rows_per_persons", "rows_per_person"),
        ("private", "hold_out", "holdout"),
        ("published", "learning_rat", "learning_rate"),
        ("published", "evaluate_evry", "evaluate_every"),
        ("published", "ipcs", "ipc"),
    ],
)
def test_a_misspelt_setting_names_the_nearest_legal_one(name: str, wrong: str, near: str) -> None:
    with pytest.raises(SettingsError, match=f"Found {wrong}. Fix: the nearest to {wrong} is {near}"):
        options_of(method_named(name), {wrong: 1})


def test_every_wrong_setting_is_in_one_message() -> None:
    with pytest.raises(SettingsError) as error:
        options_of(PRIVATE, {"steps": 5, "epsilom": 1.0, "qqqq": 0})
    for part in ("Found steps, epsilom, qqqq", "belongs to method published", "is epsilon", "see help"):
        assert part in str(error.value)


def test_an_unknown_method_names_the_nearest_and_the_default_is_private() -> None:
    with pytest.raises(SettingsError, match=r"one of private, published.* Found 'publishd'. Fix: say published"):
        method_named("publishd")
    assert default_method() == "private"


# -- values -----------------------------------------------------------------------------------------------------------


def test_numbers_of_numpy_become_those_of_python() -> None:
    made = PrivateOptions(
        epsilon=np.float32(1.0),
        delta=np.float64(1e-6),
        ipc=np.int64(3),
        seed=np.uint8(7),
        holdout=np.float16(0.25),
        horizon=np.int32(60),
        trust_inferred_schema=np.bool_(True),
    )
    assert made == PrivateOptions(
        epsilon=1.0, delta=1e-6, ipc=3, seed=7, holdout=0.25, horizon=60.0, trust_inferred_schema=True
    )
    kinds = {name: type(getattr(made, name)) for name in ("epsilon", "ipc", "horizon", "trust_inferred_schema")}
    assert kinds == {"epsilon": float, "ipc": int, "horizon": float, "trust_inferred_schema": bool}
    assert json.loads(json.dumps(made.to_dict())) == made.to_dict()
    ranged = PublishedOptions(sigma_base=np.float32(2), perturbation=[np.float64(0.1), np.int64(2)], steps=np.int16(5))
    assert ranged.perturbation == (0.1, 2.0)
    assert list(map(type, ranged.perturbation)) == [float, float]
    json.dumps(ranged.to_dict())


def test_a_run_with_numbers_of_numpy_is_the_same_run(binary: Cohort, tmp_path: Any) -> None:
    """Also its identity on disk: it resumes, and is refused as finished, not as another run."""
    how = {"method": "published", "noise": False, "steps": 2, "threads": 1}
    dc.condense(binary, ipc=np.int64(5), rho=np.float64(0.1), **how, out=tmp_path / "run")
    with pytest.raises(dc.errors.RunFolderError, match="finished"):
        dc.condense(binary, ipc=5, rho=0.1, **how, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("options", "how", "says"),
    [
        (PrivateOptions, {"ipc": 2.5}, "ipc: must be a whole number or a list of whole numbers. Found float"),
        (PrivateOptions, {"ipc": True}, "ipc: must be a whole number or a list of whole numbers. Found bool"),
        (PrivateOptions, {"ipc": np.bool_(True)}, "ipc: must be a whole number"),
        (PrivateOptions, {"epsilon": "1"}, "epsilon: must be a number. Found str. Fix: typical values"),
        (PrivateOptions, {"epsilon": None}, "epsilon: must be a number"),
        (PrivateOptions, {"trust_inferred_schema": 1}, "must be true or false"),
        (PrivateOptions, {"reference": 3}, "reference: must be a text"),
        (PrivateOptions, {"epsilon": float("nan")}, "epsilon: must be above 0"),
        (PrivateOptions, {"epsilon": np.float32("inf")}, "epsilon: must be above 0 and finite"),
        (PrivateOptions, {"delta": 0.5}, "at most 0.01"),
        (PrivateOptions, {"delta": 1.5}, r"must be in \(0, 1\)"),
        (PrivateOptions, {"holdout": 1.0}, r"must be in \[0, 1\)"),
        (PrivateOptions, {"rows_per_person": 0}, "rows_per_person: must be in"),
        (PrivateOptions, {"horizon": 0}, "horizon: must be above 0"),
        (PrivateOptions, {"ipc": 0}, "ipc: must be between"),
        (PrivateOptions, {"seed": -1}, "seed: must be in"),
        (PublishedOptions, {}, "needs a budget or a noise level"),
        (PublishedOptions, {"noise": False, "epsilon": 1.0}, "without noise takes neither"),
        (PublishedOptions, {"noise": False, "sigma_base": 1.0}, "without noise takes neither"),
        (PublishedOptions, {"noise": False, "perturbation": (1.0,)}, "perturbation: must be two numbers"),
        (PublishedOptions, {"noise": False, "perturbation": (2.0, 1.0)}, "perturbation: must be a range"),
        (PublishedOptions, {"noise": False, "path": "quick"}, "path: must be one of auto"),
        (PublishedOptions, {"noise": False, "rho": 1.0}, r"rho: must be in \[0, 1\)"),
        (PublishedOptions, {"noise": "no"}, "noise: must be true or false"),
    ],
)
def test_a_value_out_of_its_range_is_named_with_its_rule(options: Any, how: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        options(**how)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(SettingsError) as error:
        PrivateOptions(epsilon=-1.0, delta=2.0, holdout=3.0)
    for name in ("epsilon", "delta", "holdout"):
        assert f"- {name}: must be" in str(error.value)


def test_the_epsilon_of_a_record_stands_beside_its_guarantee_and_a_noise_key_is_in_no_record() -> None:
    assert "epsilon_end_to_end" in PrivateOptions().to_dict()
    record = PublishedOptions(epsilon=2.0, noise_key=7, reference=lambda rows: rows).to_dict()
    assert record["epsilon_as_published"] == 2.0
    assert "epsilon" not in record
    assert "noise_key" not in record
    assert record["reference"] == "function"


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_every_option_says_what_it_is_for(method: Any) -> None:
    for entry in fields(method.Options):
        assert entry.metadata["about"].endswith(".")


# -- which outcomes ---------------------------------------------------------------------------------------------------


def test_published_refuses_several_classes_by_name_and_says_who_takes_them() -> None:
    schema = Schema((*SMALL_SCHEMA.columns, Column("grade", "categorical", categories=("a", "b", "c"))))
    facts = Facts.from_goal(Goal.from_roles(target="grade"), schema)
    with pytest.raises(SettingsError) as error:
        prepare(PUBLISHED, facts, PublishedOptions(epsilon=1.0))
    message = str(error.value)
    assert "method published: takes survival and binary outcomes. Found a multiclass outcome" in message
    assert "private" in message
    PRIVATE.prepare(facts, PrivateOptions())


# -- one rule for the horizon -----------------------------------------------------------------------------------------

FOLLOWED = Goal.from_roles(time="months", event="event")
EVENT = Column("event", "binary", categories=(0, 1))
BOUNDED, UNBOUNDED = Column("months", "continuous", low=0, high=72), Column("months", "continuous")


@pytest.mark.parametrize(
    ("months", "horizon", "known"),
    [(BOUNDED, None, 72.0), (BOUNDED, 60.0, 60.0), (UNBOUNDED, 60.0, 60.0), (UNBOUNDED, None, None)],
)
@pytest.mark.parametrize("origin", ["declared", "inferred"])
def test_the_horizon_is_what_was_said_else_the_schema_s_bound_else_refused_before_a_row_is_read(
    months: Column, horizon: float | None, known: float | None, origin: Any
) -> None:
    schema = Schema((*SMALL_SCHEMA.columns, months, EVENT), origin)
    options = PrivateOptions(horizon=horizon, trust_inferred_schema=origin == "inferred")
    facts = Facts.from_goal(FOLLOWED, schema)
    cohort = Cohort.from_frame(small_frame(50), time="months", event="event", ignore=["died"], schema=schema)
    for public in (facts, cohort.facts):  # before and after the table is read: the same answer
        if known is None:
            with pytest.raises(SettingsError, match=r"horizon: the public end of follow-up must be known.*say horizon"):
                PRIVATE.prepare(public, options)
        else:
            PRIVATE.prepare(public, options)
            assert public.kind.private_side(horizon=horizon).objective.horizon == known


@pytest.mark.usefixtures("quick_placement")
def test_a_trusted_inferred_schema_with_bounds_on_the_time_goes_all_the_way() -> None:
    frame = small_frame(900).drop(columns="died")
    schema = Schema.infer(frame)
    assert schema.origin == "inferred"
    assert schema["months"].high is not None
    how = {"time": "months", "event": "event"}
    PRIVATE.prepare(Facts.from_goal(Goal.from_roles(**how), schema), PrivateOptions(trust_inferred_schema=True))
    cohort = Cohort.from_frame(frame, schema=schema, **how)
    result = dc.condense(cohort, epsilon=6.0, ipc=10, threads=1, trust_inferred_schema=True)
    assert result.frame["months"].max() <= schema["months"].high
    assert "inferred from the patients" in result.privacy.paragraph()
    with pytest.raises(SchemaError, match="must be declared"):
        dc.condense(cohort, epsilon=6.0, ipc=10, threads=1)


def test_without_any_schema_a_trusted_run_still_needs_a_horizon() -> None:
    facts = Facts.from_goal(FOLLOWED, None)
    with pytest.raises(SettingsError, match="end of follow-up must be known"):
        PRIVATE.prepare(facts, PrivateOptions(trust_inferred_schema=True))
    PRIVATE.prepare(facts, PrivateOptions(trust_inferred_schema=True, horizon=60.0))
    cohort = Cohort.from_frame(small_frame(60), time="months", event="event", ignore=["died"])
    with pytest.raises(SettingsError, match="end of follow-up must be known"):
        dc.condense(cohort, trust_inferred_schema=True)


def test_a_horizon_is_for_outcomes_with_a_time(binary: Cohort) -> None:
    with pytest.raises(SettingsError, match=r"horizon: is for outcomes with a time. Found a binary outcome"):
        dc.condense(binary, horizon=60.0)
