"""Other sites: the same models there, the site's own beside them, and sites that do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distcondense import Cohort, Column
from distcondense.data.persons import Stratified
from distcondense.errors import CohortError
from distcondense.evaluation.experiment import HELD_OUT
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT
from distcondense.evaluation.utility import sites
from tests.conftest import SMALL_TABLE, small_frame
from tests.evaluation_inputs import HOW, cohort_of, home_of, nobody_held_out, noise_cohort, without_rows


@pytest.mark.parametrize("kind", HOW)
def test_models_of_home_are_tested_everywhere_beside_each_sites_own(kind):
    inputs, there = home_of(cohort_of(kind, 700)), cohort_of(kind, 500, seed=8)
    part = sites.section(inputs, sites={"OUH": there, "UHB": cohort_of(kind, 400, seed=9)}, seed=0, threads=1)
    main = inputs.kind.measures[0]
    found = {(s.trained_on, s.labels, s.group, s.tested_on) for s in part.scores if s.measure == main}
    ours = {(FULL, "", ""), (CONDENSED, PLAIN, ""), (CONDENSED, SOFT, ""), (RANDOM, "", "")}
    wanted = {(*way, place) for way in ours for place in (HELD_OUT, "OUH", "UHB")}
    assert found == wanted | {(FULL, "", sites.OWN, "OUH"), (FULL, "", sites.OWN, "UHB")}
    assert {s.n for s in part.scores if s.tested_on == "OUH"} == {len(Stratified(0).split(there).test)}
    assert [len(table.rows) for table in part.tables] == [4, 5, 5]
    assert [len(series.x) for series in part.figures[0].series] == [3, 3, 3, 3, 2]


def test_a_number_at_another_site_is_the_librarys_with_the_cut_from_home():
    from sklearn.metrics import recall_score, roc_auc_score

    inputs, there = home_of(cohort_of("binary", 900)), cohort_of("binary", 700, seed=8)
    part = sites.section(inputs, sites={"OUH": there}, seed=0, threads=1)
    split = Stratified(0).split(there)
    test, train = there.take(split.test), there.take(split.train)
    encode, label = inputs.codec.encode, test.outcome["label"]
    model = inputs.learner.fit(inputs.rows, inputs.made, seed=0)
    apart = there.take(split.validation)
    validation = (encode(apart.features), apart.outcome)
    own = inputs.learner.fit(encode(train.features), train.outcome, validation=validation, seed=0)
    score = {(s.trained_on, s.labels, s.group, s.measure): s for s in part.scores if s.tested_on == "OUH"}
    said = model.scores(encode(test.features))
    assert score[CONDENSED, PLAIN, "", "auroc"].value == pytest.approx(roc_auc_score(label, said), abs=1e-9)
    cut = score[CONDENSED, PLAIN, "", "sensitivity"].threshold
    at_home = {
        s.threshold for s in part.scores if (s.trained_on, s.labels, s.tested_on) == (CONDENSED, PLAIN, HELD_OUT)
    }
    assert at_home == {cut}
    wanted = recall_score(label, said >= cut)
    assert score[CONDENSED, PLAIN, "", "sensitivity"].value == pytest.approx(wanted, abs=1e-9)
    wanted = roc_auc_score(label, own.scores(encode(test.features)))
    assert score[FULL, "", sites.OWN, "auroc"].value == pytest.approx(wanted, abs=1e-9)


def test_another_sites_persons_are_counted_together():
    inputs, there = home_of(noise_cohort(500, 3)), noise_cohort(300, 3, seed=4, persons=4)
    alone = replace(there, person=None)
    widths = []
    for cohort in (there, alone):
        part = sites.section(inputs, sites={"OUH": cohort}, seed=0, threads=1)
        score = next(s for s in part.scores if (s.tested_on, s.measure) == ("OUH", "auroc"))
        widths.append(score.high - score.low)
    assert widths[0] > 1.6 * widths[1]


# -- sites that do not fit --------------------------------------------------------------------------------------------


def test_categories_that_home_does_not_know_are_refused_by_column_and_count_without_the_value():
    frame = small_frame(300)
    frame.loc[:4, "stage"] = "CANARY"
    schema = SMALL_TABLE.described([Column("stage", "categorical", categories=("I", "II", "III", "CANARY"))])
    there = Cohort.from_frame(frame, schema=schema, **HOW["binary"])
    with pytest.raises(CohortError, match=r"site 'OUH', column 'stage'.*5 rows") as error:
        sites.section(home_of(cohort_of("binary")), sites={"OUH": there}, seed=0, threads=1)
    assert "CANARY" not in str(error.value)


def test_columns_that_a_site_does_not_have_are_named():
    schema = SMALL_TABLE.without(["crp", "stage"])
    there = Cohort.from_frame(small_frame(300).drop(columns=["crp", "stage"]), schema=schema, **HOW["binary"])
    with pytest.raises(CohortError, match=r"site 'OUH'.*2 missing: 'crp', 'stage'"):
        sites.section(home_of(cohort_of("binary")), sites={"OUH": there}, seed=0, threads=1)


def test_another_outcome_is_refused():
    with pytest.raises(CohortError, match="outcome of the home's kind"):
        sites.section(home_of(cohort_of("binary")), sites={"OUH": cohort_of("survival")}, seed=0, threads=1)


def test_holes_where_home_has_none_are_refused():
    frame = small_frame(300)
    frame.loc[:2, "crp"] = np.nan
    schema = SMALL_TABLE.described([Column("crp", "continuous", low=0, high=400, missing="indicator")])
    there = Cohort.from_frame(frame, schema=schema, **HOW["binary"])
    with pytest.raises(CohortError, match=r"site 'OUH', column 'crp'.*3 rows"):
        sites.section(home_of(cohort_of("binary")), sites={"OUH": there}, seed=0, threads=1)


def test_categories_that_are_written_otherwise_are_the_same():
    frame = small_frame(500, seed=8)
    written = frame.assign(smoker=frame["smoker"].map({0: "0", 1: "1"}))
    schema = SMALL_TABLE.described([Column("smoker", "binary", categories=("0", "1"))])
    inputs = home_of(cohort_of("binary", 700))
    plain, text = (
        sites.section(inputs, sites={"OUH": Cohort.from_frame(table, schema=by, **HOW["binary"])}, seed=0, threads=1)
        for table, by in ((frame, SMALL_TABLE), (written, schema))
    )
    assert repr(plain.scores) == repr(text.scores)


def test_a_site_with_too_few_rows_is_a_note_and_the_others_stay():
    inputs, few = home_of(cohort_of("binary")), cohort_of("binary", 8, seed=3)
    part = sites.section(inputs, sites={"tiny": few, "OUH": cohort_of("binary", 400, seed=8)}, seed=0, threads=1)
    assert {s.tested_on for s in part.scores} == {HELD_OUT, "OUH"}
    assert any(note.startswith("tiny: not measured") for note in part.notes)


def test_no_rows_no_sites_and_the_same_seed():
    cohort, there = cohort_of("binary", 300), {"OUH": cohort_of("binary", 300, seed=8)}
    for inputs, words in ((without_rows(home_of(cohort)), "no condensed rows"), (nobody_held_out(cohort), "held out")):
        part = sites.section(inputs, sites=there, seed=0, threads=1)
        assert part.scores == ()
        assert words in part.notes[0]
    assert sites.section(home_of(cohort), sites={}, seed=0, threads=1).notes == ("no other site was given",)
    one, again, other = (sites.section(home_of(cohort), sites=there, seed=seed, threads=1) for seed in (0, 0, 1))
    assert repr(one) == repr(again)
    assert repr(one.scores) != repr(other.scores)
