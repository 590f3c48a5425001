"""Survival in the private method: intervals that follow the events, and curves that are the patients' own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

import distcondense as dc
from distcondense.arrays import Floats
from distcondense.data.outcome import Goal
from distcondense.errors import CohortError
from distcondense.outcomes.survival import (
    Ends,
    PiecewiseExponential,
    Survival,
    _between_ticks,
    followed_cuts,
    public_moments,
    smooth_hazard,
)

HORIZON = 2100
DAYS = dc.Column("days", "integer", low=0, high=HORIZON)
NO_NOISE = 1e-6


def early(rows: int, seed: int = 1) -> pd.DataFrame:
    """Half of the deaths in the first 60 of about 2,000 days."""
    rng = np.random.default_rng(seed)
    age, sick = np.clip(rng.normal(63, 15, rows), 18, 100).round(), rng.random(rows) < 0.3
    risk = 0.02 * (age - 63) + 1.0 * sick
    dies, leaves = 260 * (rng.exponential(size=rows) * np.exp(-risk)) ** (1 / 0.45), rng.uniform(344, 2029, rows)
    days = np.clip(np.ceil(np.minimum(dies, leaves)), 1, 2029)
    return pd.DataFrame({"age": age, "sick": sick.astype(int), "days": days.astype(int), "died": dies <= leaves})


def cohort_of(frame: pd.DataFrame) -> dc.Cohort:
    columns = (
        dc.Column("age", "integer", low=18, high=110),
        dc.Column("sick", "binary", categories=(0, 1)),
        DAYS,
        dc.Column("died", "binary", categories=(False, True)),
    )
    schema = dc.Schema(columns, origin="declared")
    return dc.Cohort.from_frame(frame, time="days", event="died", positive=True, schema=schema)


def kaplan_meier(time: Floats, event: Floats, at: Floats) -> Floats:
    return KaplanMeierFitter().fit(time, event).survival_function_at_times(at).to_numpy()


# ---- intervals


def test_public_moments_lie_between_legal_times_and_closer_together_towards_the_beginning() -> None:
    moments = np.array(public_moments(HORIZON, DAYS))
    assert (np.diff(moments) > 0).all()
    assert ((moments > 0) & (moments < HORIZON)).all()
    assert set(moments % 1) == {0.5}
    assert np.diff(moments)[0] == 1
    assert np.diff(moments)[-1] > 100
    any_time = np.array(public_moments(5.0, None))
    assert any_time[0] == pytest.approx(5 / 2**12)


def test_cuts_follow_the_events_and_leave_enough_rows_in_each_interval() -> None:
    frame = early(9000)
    objective = PiecewiseExponential((), HORIZON, grid=public_moments(HORIZON, DAYS))
    target = objective.prepare({"label": frame["died"].to_numpy(), "time": frame["days"].to_numpy()})
    counts = np.bincount(objective.group("moment", target), minlength=objective.groupings["moment"]).astype(float)
    edges = np.array([0.0, *objective.grid, HORIZON])
    cuts = _between_ticks(followed_cuts(edges, counts, 20.0), HORIZON, DAYS)
    deaths = frame["days"][frame["died"]]
    assert (cuts < 60).sum() >= 6  # half of the deaths are there
    held = (
        np.histogram(deaths, [0, *cuts, HORIZON])[0]
        + np.histogram(frame["days"][~frame["died"]], [0, *cuts, HORIZON])[0]
    )
    assert held.min() > 30
    few = followed_cuts(edges, counts, 500.0)  # much noise: few intervals, no fewer than the least
    assert 1 <= len(few) < 8


def test_without_noise_the_curve_is_that_of_lifelines_at_every_cut() -> None:
    frame = early(3000)
    time, died = frame["days"].to_numpy(float), frame["died"].to_numpy()
    edges = np.array([0.0, 1.5, 3.5, 8.5, 20.5, 60.5, 150.5, 343.5, 700.5, 1200.5, HORIZON])
    left = np.append(np.histogram(time[~died], edges)[0], 0)
    ends = Ends(edges, np.histogram(time[died], edges)[0].astype(float), left.astype(float), NO_NOISE)
    dying, leaving = ends.rates(ends.finer())
    reached = np.append(0.0, np.cumsum(dying * np.diff(ends.finer())))
    ours = np.exp(-np.interp(edges[:-1], ends.finer(), reached))
    np.testing.assert_allclose(ours, kaplan_meier(time, died, edges[:-1]), atol=0.006)
    assert (leaving * np.diff(ends.finer()))[ends.finer()[1:] <= 343.5].sum() < 0.01


def test_hazards_that_drown_in_noise_become_a_curve_and_others_are_kept() -> None:
    rng = np.random.default_rng(0)
    middle, lived = np.geomspace(2, 1500, 12), np.full(12, 1000.0)
    truth = 0.3 * middle**-0.4
    clear = smooth_hazard(truth * lived, lived, middle, 0.1)
    np.testing.assert_allclose(clear, truth, rtol=0.01)
    bumpy = truth * np.where(np.arange(12) % 4 == 0, 2.0, 1.0)
    np.testing.assert_allclose(smooth_hazard(bumpy * lived, lived, middle, 0.1), bumpy, rtol=0.05)
    missed, kept = [], []
    for _ in range(20):
        noisy = truth * lived + rng.normal(0, 15, 12)
        missed.append(np.abs(smooth_hazard(noisy, lived, middle, 15.0) - truth).mean())
        kept.append(np.abs(noisy / lived - truth).mean())
    assert np.mean(missed) < 0.6 * np.mean(kept)
    silent = smooth_hazard(np.zeros(12), np.zeros(12), middle, 1.0)
    assert np.isfinite(silent).all()


# ---- rows, page and patients


def test_rows_page_and_patients_have_one_curve_where_half_of_the_deaths_come_early() -> None:
    frame = early(6000)
    made = dc.condense(cohort_of(frame), ipc=[100, 500], epsilon=2, delta=1e-5, holdout=0, seed=0, threads=1)
    time, died = frame["days"].to_numpy(float), frame["died"].to_numpy()
    first = np.quantile(time[died], 0.01)
    at = np.unique(time[(time >= first) & (time <= np.quantile(time, 0.99))])
    patients = kaplan_meier(time, died, at)
    for ipc, apart in ((100, 0.05), (500, 0.03)):
        rows = made[ipc].frame
        assert rows["days"].dtype == np.int64  # as patients have them
        own = kaplan_meier(rows["days"].to_numpy(float), rows["died"].to_numpy(bool), at)
        assert np.abs(own - patients).max() < apart
        (page,) = made[ipc].covered["model"][0].series
        assert np.abs(np.interp(at, np.array(page.x, float), page.y) - patients).max() < 0.03


# ---- competing events


@pytest.mark.parametrize("declared", [True, False])
def test_competing_events_are_refused_with_what_to_do_instead(declared: bool) -> None:
    frame = early(50).assign(died=np.resize([0, 1, 2], 50))
    schema = None
    if declared:
        schema = dc.Schema((DAYS, dc.Column("died", "categorical", categories=("0", "1", "2"))), origin="declared")
    with pytest.raises(CohortError, match=r"competing events are not taken.*cause-specific"):
        Survival.from_goal(Goal.from_roles(time="days", event="died"), schema).read(frame)
