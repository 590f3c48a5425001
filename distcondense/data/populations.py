"""The simulated populations behind `datasets`: what each column looks like, and how the outcome follows from it.

No row is a patient's: shapes and row numbers are those of Thakur et al. 2026 (Table 1), the distributions were
written by hand to look plausible. The seer population leans on data: see the line above its tables.

Each of `curial`, `proteomics`, `diabetes` and `seer` gives a `Population`, which makes rows in fixed blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.data.names import nearest
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError

Array = NDArray[Any]
Rng = np.random.Generator
BLOCK = 4_096  # rows per random stream; changing it changes every simulated row
POPULATION = 20_250  # seeds what belongs to the population (protein loadings), not to the patients


@dataclass(frozen=True)
class Population:
    """How a simulated cohort is made: `make` gives one block as arrays whose last axis is rows.

    A key of the block is a column (labels as codes into the schema's categories), or "" for a whole float32 matrix of
    the schema's first columns, (columns, rows): pandas' own layout, so the frame can be built on it without a copy.
    """

    key: str
    rows: int  # the paper's
    schema: Schema
    make: Callable[[Rng, int], dict[str, Array]]
    description: str
    target: str | None = None
    time: str | None = None
    event: str | None = None

    def block(self, seed: int, number: int) -> dict[str, Array]:
        stream = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(self.key.encode()), number))
        return self.make(np.random.default_rng(stream), BLOCK)

    def frame(self, arrays: Mapping[str, Array]) -> pd.DataFrame:
        if "" in arrays:
            matrix = arrays[""]
            frame = pd.DataFrame(matrix.T, columns=self.schema.names[: len(matrix)], copy=False)
            for name in self.schema.names[len(matrix) :]:
                frame[name] = arrays[name]
            return frame
        return pd.DataFrame({c.name: _finish(arrays[c.name], c) for c in self.schema.columns})


def _finish(values: Array, column: Column) -> Any:
    if column.numeric or column.categories == (0, 1):
        return values
    labels: Any = list(column.categories)  # pandas-stubs wants an Index here; pandas does not
    return pd.Categorical.from_codes(values, categories=labels)


# -- shared pieces ----------------------------------------------------------------------------------------------------


def yes_no(name: str) -> Column:
    return Column(name, "binary", categories=(0, 1))


def _settle(values: Array, low: float, high: float, decimals: int) -> Array:
    """Clipped and rounded as a laboratory reports it; whole numbers as integers."""
    values = np.round(np.clip(values, low, high), decimals)
    return values.astype(np.int32) if decimals == 0 else values


def _bounded(values: Mapping[str, Array], columns: tuple[Column, ...], decimals: int) -> dict[str, Array]:
    public = {c.name: c for c in columns}
    out = {}
    for name, array in values.items():
        column = public[name]
        low, high = column.low or 0, column.high or 0
        out[name] = _settle(array, low, high, 0 if column.kind == "integer" else decimals)
    return out


def _pick(rng: Rng, n: int, shares: Mapping[str, float]) -> Array:
    return np.digitize(rng.random(n), np.cumsum(list(shares.values()))[:-1])


def count(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        rule = f"must be a whole number, {least} or more"
        raise SettingsError(name, rule, found=repr(value), fix=f"e.g. {name}={least}")
    return int(value)


def _prevalence(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise SettingsError("prevalence", "must be between 0 and 1", found=repr(value), fix="e.g. prevalence=0.05")
    return float(value)


# -- CURIAL-like: COVID-19 in emergency departments -------------------------------------------------------------------


def _moves(**by: float) -> dict[str, float]:
    return by


# name, unit, low, high, decimals, centre, spread; a spread below 0 is of the logarithm, about the centre as median
_MEASURED: tuple[tuple[str, str, float, float, int, float, float], ...] = (
    ("heart_rate", "beats/min", 20, 250, 0, 86, 18),
    ("respiratory_rate", "breaths/min", 4, 70, 0, 18, -0.17),
    ("oxygen_saturation", "%", 50, 100, 0, 96.6, 2.2),
    ("systolic_blood_pressure", "mmHg", 40, 280, 0, 134, 22),
    ("diastolic_blood_pressure", "mmHg", 20, 180, 0, 76, 13),
    ("temperature", "°C", 30, 43, 1, 36.7, 0.6),
    ("haemoglobin", "g/L", 20, 250, 0, 130, 18),
    ("haematocrit", "L/L", 0.05, 0.75, 3, 0, 0),
    ("mean_cell_volume", "fL", 50, 150, 1, 91, 6.5),
    ("white_cells", "10^9/L", 0, 150, 2, 0, 0),
    ("neutrophils", "10^9/L", 0, 80, 2, 5.8, -0.45),
    ("lymphocytes", "10^9/L", 0, 60, 2, 1.5, -0.5),
    ("monocytes", "10^9/L", 0, 10, 2, 0.6, -0.42),
    ("eosinophils", "10^9/L", 0, 10, 2, 0.11, -0.9),
    ("basophils", "10^9/L", 0, 2, 2, 0.04, -0.5),
    ("platelets", "10^9/L", 5, 1500, 0, 245, -0.32),
    ("albumin", "g/L", 10, 60, 0, 37, 5),
    ("alkaline_phosphatase", "U/L", 10, 2500, 0, 86, -0.42),
    ("alanine_aminotransferase", "U/L", 3, 5000, 0, 21, -0.6),
    ("bilirubin", "µmol/L", 1, 600, 0, 9, -0.55),
    ("c_reactive_protein", "mg/L", 0.1, 600, 1, 12, -1.3),
    ("sodium", "mmol/L", 100, 180, 0, 138, 4),
    ("potassium", "mmol/L", 1.5, 9, 1, 4.2, 0.5),
    ("creatinine", "µmol/L", 15, 2000, 0, 80, -0.38),
    ("urea", "mmol/L", 0.5, 80, 1, 6.2, -0.48),
    ("estimated_gfr", "mL/min/1.73 m²", 1, 150, 0, 0, 0),
    ("lactate", "mmol/L", 0.2, 25, 1, 1.5, -0.45),  # blood gas: in CURIAL's papers, not in Table S1
)
_DEVICES = ("room air", "nasal cannula", "simple mask", "venturi mask", "reservoir mask", "high flow or CPAP")
# fmt: off
# what moves together: loadings of hidden factors on standardised measurements
_FACTORS: tuple[dict[str, float], ...] = (
    _moves(c_reactive_protein=0.7, neutrophils=0.55, albumin=-0.45, platelets=0.3, temperature=0.4, heart_rate=0.35,
           lymphocytes=-0.3, eosinophils=-0.35, monocytes=0.2),
    _moves(creatinine=0.75, urea=0.75, potassium=0.35, haemoglobin=-0.2),
    _moves(haemoglobin=0.7, albumin=0.4, mean_cell_volume=0.2, alkaline_phosphatase=-0.2),
    _moves(systolic_blood_pressure=0.75, diastolic_blood_pressure=0.75, lactate=-0.2),
    _moves(alanine_aminotransferase=0.7, alkaline_phosphatase=0.5, bilirubin=0.5),
    _moves(respiratory_rate=0.6, oxygen_saturation=-0.6, heart_rate=0.35, lactate=0.35),
    _moves(lymphocytes=0.45, monocytes=0.45, eosinophils=0.4, basophils=0.5),
)
# who comes: (share, shift in standard deviations); case kinds differ in sodium and platelets, which only trees can use
_CASES: tuple[tuple[float, dict[str, float]], ...] = (
    (0.5, _moves(c_reactive_protein=1.1, eosinophils=-1.2, lymphocytes=-0.9, neutrophils=-0.2, basophils=-0.4,
                 monocytes=-0.9, platelets=-0.9, temperature=0.8, respiratory_rate=0.8, oxygen_saturation=-0.8,
                 alanine_aminotransferase=1.0, albumin=-0.3, sodium=-1.4, potassium=-0.7)),
    (0.25, _moves(c_reactive_protein=1.4, eosinophils=-1.5, lymphocytes=-1.4, neutrophils=0.6, basophils=-0.4,
                  respiratory_rate=1.7, oxygen_saturation=-2.2, albumin=-0.8, urea=0.8, sodium=1.3, heart_rate=0.6,
                  temperature=0.8, platelets=0.5, monocytes=0.6)),
    (0.25, _moves(eosinophils=-0.9, lymphocytes=-0.8, temperature=0.6, basophils=-0.6, neutrophils=-1.2,
                  platelets=-0.8)),
)
_OTHERS: tuple[tuple[float, dict[str, float]], ...] = (
    (0.42, {}),
    (0.32, _moves(c_reactive_protein=2.1, neutrophils=1.6, eosinophils=-1.7, lymphocytes=-1.4, temperature=1.2,
                  heart_rate=0.8, albumin=-0.6, lactate=0.4, respiratory_rate=0.8, monocytes=0.5)),
    (0.18, _moves(respiratory_rate=1.5, oxygen_saturation=-2.0, eosinophils=0.3, heart_rate=0.4, basophils=0.2)),
    (0.08, _moves(creatinine=1.9, urea=1.7, potassium=0.8, haemoglobin=-0.7, platelets=-0.5, lymphocytes=-0.4)),
)
# shifts per 20 years above 60, and for men
_OLDER = _moves(creatinine=0.25, urea=0.4, systolic_blood_pressure=0.25, albumin=-0.25, haemoglobin=-0.2,
                heart_rate=-0.15, lymphocytes=-0.2, oxygen_saturation=-0.2)
_MALE = _moves(haemoglobin=0.55, creatinine=0.5, alanine_aminotransferase=0.3, bilirubin=0.3, monocytes=0.2)
# fmt: on


@dataclass(frozen=True)
class _Site:
    rows: int
    prevalence: float
    age: float
    shift: dict[str, float]  # analysers and case mix, in standard deviations
    oxygen: float  # how readily oxygen is given


# fmt: off
SITES = {  # rows from Table 1; the rest chosen, not measured
    "PUH": _Site(38_717, 0.053, 66, _moves(alkaline_phosphatase=0.15, sodium=-0.1), 0.1),
    "OUH": _Site(161_955, 0.025, 58, _moves(c_reactive_protein=-0.35, albumin=0.2, creatinine=-0.1, urea=-0.15), -0.1),
    "UHB": _Site(95_236, 0.042, 55, _moves(haemoglobin=-0.2, mean_cell_volume=-0.3, alkaline_phosphatase=-0.3,
                                           bilirubin=0.2, lymphocytes=0.15, temperature=0.15), 0.3),
}


@dataclass(frozen=True)
class _Shift:
    """How a site differs where sites are to differ as hospitals do: who comes, what analysers say, what is measured."""

    others: tuple[float, ...]  # shares of the kinds of patients without the disease, and of cases
    cases: tuple[float, ...]
    offset: dict[str, float]  # of analysers and scales, in standard deviations, the same for everybody
    unmeasured: dict[str, tuple[float, float]]  # share of the well, and of those with a high C-reactive protein


# set so that a model of all rows of one site loses about as much AUROC elsewhere as Thakur et al. 2026 print
# (Table 4); condensed rows were not looked at
SHIFTS = {
    "PUH": _Shift((0.42, 0.32, 0.18, 0.08), (0.5, 0.25, 0.25), {}, {"lactate": (0.5, 0.15), "bilirubin": (0.1, 0.05)}),
    "OUH": _Shift((0.60, 0.14, 0.08, 0.18), (0.25, 0.15, 0.60),
                  _moves(eosinophils=1.0, lymphocytes=0.7, c_reactive_protein=-0.8, basophils=0.8, sodium=0.8,
                         platelets=-0.7, monocytes=0.5),
                  {"lactate": (0.8, 0.4), "c_reactive_protein": (0.2, 0.0), "bilirubin": (0.3, 0.1)}),
    "UHB": _Shift((0.28, 0.42, 0.26, 0.04), (0.30, 0.55, 0.15),
                  _moves(eosinophils=-0.9, temperature=0.9, respiratory_rate=0.8, monocytes=-0.9, platelets=0.9,
                         sodium=-0.9, oxygen_saturation=-0.6),
                  {"lactate": (0.3, 0.05), "basophils": (0.3, 0.3), "alanine_aminotransferase": (0.25, 0.1)}),
}
# fmt: on


def curial(site: str = "PUH", prevalence: float | None = None, shifted: bool = False) -> Population:
    if site not in SITES:
        raise SettingsError("site", f"must be one of {', '.join(SITES)}", found=nearest(str(site), SITES))
    if not isinstance(shifted, bool):
        raise SettingsError("shifted", "must be true or false", found=type(shifted).__name__)
    here, apart = SITES[site], SHIFTS[site] if shifted else None
    share = here.prevalence if prevalence is None else _prevalence(prevalence)
    names = [m[0] for m in _MEASURED]
    load = np.array([[factor.get(n, 0.0) for n in names] for factor in _FACTORS])
    own = np.sqrt(1 - (load**2).sum(axis=0))
    kinds = [(part, moved, sick) for sick, mix in enumerate((_OTHERS, _CASES)) for part, moved in mix]
    moves = dict(here.shift)
    if apart is not None:
        kinds = [(part, *kind[1:]) for part, kind in zip(apart.others + apart.cases, kinds, strict=True)]
        moves |= {n: moves.get(n, 0.0) + by for n, by in apart.offset.items()}
    shifts = np.array([[moved.get(n, 0.0) + moves.get(n, 0.0) for n in names] for _, moved, _ in kinds])
    chances = np.array([part * (share if sick else 1 - share) for part, _, sick in kinds])
    is_case = np.array([sick for *_, sick in kinds], np.int8)

    def make(rng: Rng, n: int) -> dict[str, Array]:
        kind = rng.choice(len(kinds), n, p=chances)
        z = rng.standard_normal((n, len(load))) @ load + own * rng.standard_normal((n, len(names))) + shifts[kind]
        age = np.clip(np.round(rng.normal(here.age, 19, n)), 18, 105)
        male = rng.random(n) < 0.49
        old = (age - 60) / 20
        col = {}
        for j, (name, _, _, _, _, centre, spread) in enumerate(_MEASURED):
            tilt = old * _OLDER.get(name, 0.0) + male * _MALE.get(name, 0.0)
            own_z = z[:, j] + tilt
            col[name] = centre + spread * own_z if spread >= 0 else centre * np.exp(-spread * own_z)
        need = -(col["oxygen_saturation"] - 96) / 2.2 + 0.4 * rng.standard_normal(n) + here.oxygen
        device = np.digitize(need, [0.9, 1.7, 2.3, 2.8, 3.5])
        col["oxygen_saturation"] += 1.1 * device  # what is recorded is the saturation on oxygen
        col["haematocrit"] = col["haemoglobin"] * 0.00303 + rng.normal(0, 0.008, n)
        counts = ("neutrophils", "lymphocytes", "monocytes", "eosinophils", "basophils")
        col["white_cells"] = sum(col[c] for c in counts) * np.exp(rng.normal(0, 0.02, n))
        col["estimated_gfr"] = _ckd_epi(col["creatinine"], age, male)
        out = {m[0]: _settle(col[m[0]], *m[2:5]) for m in _MEASURED}
        for name, (well, ill) in ({} if apart is None else apart.unmeasured).items():
            share = np.where(col["c_reactive_protein"] > 30, ill, well)
            out[name] = np.where(rng.random(n) < share, np.nan, out[name])
        return out | {
            "age": age.astype(np.int16),
            "sex": male.astype(np.int8),
            "oxygen_device": device.astype(np.int8),
            "covid_positive": is_case[kind],
        }

    holes = (
        {name for one in SHIFTS.values() for name in one.unmeasured} if shifted else set()
    )  # one schema for all sites
    columns = [
        Column(
            m[0],
            "integer" if m[4] == 0 else "continuous",
            m[2],
            m[3],
            unit=m[1],
            missing="indicator" if m[0] in holes else "refuse",
        )
        for m in _MEASURED
    ]
    columns += [Column("age", "integer", 18, 105, unit="years"), Column("sex", "binary", categories=("female", "male"))]
    columns += [Column("oxygen_device", "categorical", categories=_DEVICES), yes_no("covid_positive")]
    text = f"Simulated emergency attendances at {site}: vital signs and bloods on arrival, COVID-19 status."
    text += " Sites differ in case mix, analysers and what is measured." if shifted else ""
    return Population(f"curial_like/{site}", here.rows, Schema(tuple(columns)), make, text, target="covid_positive")


def _ckd_epi(creatinine: Array, age: Array, male: Array) -> Array:
    """Estimated glomerular filtration rate, CKD-EPI 2021, from µmol/L."""
    ratio = creatinine / 88.42 / np.where(male, 0.9, 0.7)
    low = np.minimum(ratio, 1) ** np.where(male, -0.302, -0.241)
    return 142 * low * np.maximum(ratio, 1) ** -1.2 * 0.9938**age * np.where(male, 1, 1.012)


# -- proteomics-like: myeloma from plasma proteins --------------------------------------------------------------------

_ATTACKED = ("ACTA2", "CD27", "CD5L", "IL10RB", "TNFRSF12B")  # Thakur et al. 2026 §4.6, names as printed there


def proteomics(proteins: int = 2_932, prevalence: float = 0.01) -> Population:
    if count("proteins", proteins) < 20:
        raise SettingsError("proteins", "must be at least 20", found=str(proteins))
    share = _prevalence(prevalence)
    names = (*_ATTACKED, *(f"protein_{i:04d}" for i in range(len(_ATTACKED) + 1, proteins + 1)))
    load, noise, effect = _protein_population(proteins)

    def make(rng: Rng, n: int) -> dict[str, Array]:
        case = rng.random(n) < share
        kind = rng.integers(0, 2, n)  # two courses of disease, each with its own proteins
        severity = (rng.gamma(2.0, 0.5, n) * case).astype(np.float32)  # some cases hardly differ yet
        push = np.stack([severity * (kind == 0), severity * (kind == 1)])
        levels = rng.standard_normal((proteins, n), dtype=np.float32)
        levels *= noise[:, None]
        levels += np.hstack([load, effect]) @ np.vstack([rng.standard_normal((load.shape[1], n), np.float32), push])
        return {"": np.clip(levels, -12, 12, out=levels), "myeloma": case.astype(np.int8)}

    columns = (*(Column(name, "continuous", -12, 12, unit="NPX") for name in names), yes_no("myeloma"))
    text = f"Simulated plasma levels of {proteins:,} proteins (NPX, standardised) and later multiple myeloma."
    return Population("proteomics_like", 52_999, Schema(columns), make, text, target="myeloma")


@cache
def _protein_population(proteins: int) -> tuple[Array, Array, Array]:
    """Factor loadings (p, 40), own noise (p,) and the cases' shifts (p, 2): 16 to 50 informative proteins."""
    rng = np.random.default_rng([POPULATION, proteins])
    load = rng.standard_normal((proteins, 40)) * (rng.random((proteins, 40)) < 0.2)
    common = rng.beta(2, 3, proteins)  # share of the variance that the factors explain
    load *= np.sqrt(common / np.maximum((load**2).sum(axis=1), 1e-9))[:, None]
    noise = np.sqrt(1 - (load**2).sum(axis=1))
    effect = np.zeros((proteins, 2))
    informative = np.concatenate([np.arange(5), 5 + rng.permutation(proteins - 5)])[: min(50, proteins * 4 // 5)]
    both = informative[: len(informative) // 5]
    for kind, chosen in enumerate((informative[::2], informative[1::2])):
        effect[chosen, kind] = rng.gamma(2.0, 0.33, len(chosen)) * rng.choice([-1, 1], len(chosen), p=[0.3, 0.7])
    effect[both] = effect[both].sum(axis=1, keepdims=True)
    return load.astype(np.float32), noise.astype(np.float32), effect.astype(np.float32)


# -- diabetes-like: onset in a volunteer cohort -----------------------------------------------------------------------

_ETHNICITY = {"White": 0.942, "South Asian": 0.02, "Black": 0.016, "Mixed": 0.006, "Other": 0.012, "Unanswered": 0.004}
_SMOKING = {"Never": 0.55, "Previous": 0.345, "Current": 0.105}


def diabetes() -> Population:
    columns = (
        Column("previous_hypertension", "binary", categories=("no", "yes")),
        Column("age", "integer", 37, 73, unit="years"),
        Column("bmi", "continuous", 12, 75, unit="kg/m²"),
        Column("deprivation_index", "continuous", -7, 11, unit="Townsend score"),
        Column("gamma_glutamyl_transferase", "continuous", 5, 1200, unit="U/L"),
        Column("low_density_lipoprotein", "continuous", 0.2, 10, unit="mmol/L"),
        Column("triglycerides", "continuous", 0.2, 12, unit="mmol/L"),
        Column("igf_1", "continuous", 1, 130, unit="nmol/L"),
        Column("creatinine", "continuous", 10, 1500, unit="µmol/L"),
        Column("sex", "binary", categories=("female", "male")),
        Column("ethnicity", "categorical", categories=tuple(_ETHNICITY)),
        Column("smoking", "categorical", categories=tuple(_SMOKING)),
        Column("years", "continuous", 0.01, 16, unit="years"),
        yes_no("diabetes"),
    )

    def make(rng: Rng, n: int) -> dict[str, Array]:
        fat, metabolic = rng.standard_normal((2, n))  # what drives BMI, and what ties the bloods to it
        metabolic = 0.5 * fat + 0.87 * metabolic
        male = rng.random(n) < 0.456
        age = np.clip(np.round(37 + 36 * rng.beta(2.1, 1.7, n)), 37, 73)
        ethnicity = _pick(rng, n, _ETHNICITY)
        smoking = _pick(rng, n, _SMOKING)
        asian, black = ethnicity == 1, ethnicity == 2
        bmi = 26.8 * np.exp(0.165 * fat + 0.013 * rng.standard_normal(n)) + 1.5 * black
        deprivation = -1.3 + 3.0 * (rng.gamma(2.2, 0.65, n) - 1.43) + 0.4 * (smoking == 2) + 1.2 * (asian | black)
        ggt = 26 * np.exp(0.35 * metabolic + 0.48 * rng.standard_normal(n) + 0.35 * male)
        ldl = 3.55 + 0.82 * rng.standard_normal(n) + 0.15 * metabolic - 0.1 * male
        triglycerides = 1.45 * np.exp(0.27 * metabolic + 0.4 * rng.standard_normal(n) + 0.2 * male)
        igf = 21.4 + 5.2 * rng.standard_normal(n) - 0.1 * (age - 56) - 0.9 * metabolic
        creatinine = 64 * np.exp(0.16 * rng.standard_normal(n) + 0.22 * male + 0.003 * (age - 56))
        pressure = 0.075 * (age - 56) + 0.45 * fat + 0.25 * male + rng.logistic(size=n) > 1.15
        # fmt: off
        risk = (
            0.042 * (age - 56) + 0.60 * pressure + 0.095 * (np.minimum(bmi, 42) - 27) + 0.055 * deprivation
            + 0.34 * np.log(ggt / 28) + 0.62 * np.log(triglycerides / 1.5) - 0.10 * (ldl - 3.5) - 0.022 * (igf - 21)
            + 0.20 * male + 1.0 * asian + 0.6 * black + 0.25 * (ethnicity > 2) + 0.30 * (smoking == 2)
            + 0.10 * (smoking == 1) + 0.3 * np.log(creatinine / 70) ** 2
        )
        # fmt: on
        onset = 440 * (rng.exponential(size=n) / np.exp(1.2 * risk)) ** (1 / 1.15)  # Weibull, proportional hazards
        leave = np.minimum(rng.uniform(10.5, 14.8, n), rng.exponential(180, n))  # end of follow-up, or death
        values = {
            "age": age,
            "bmi": bmi,
            "deprivation_index": deprivation,
            "gamma_glutamyl_transferase": ggt,
            "low_density_lipoprotein": ldl,
            "triglycerides": triglycerides,
            "igf_1": igf,
            "creatinine": creatinine,
            "years": np.minimum(onset, leave),
        }
        codes = {
            "previous_hypertension": pressure,
            "sex": male,
            "ethnicity": ethnicity,
            "smoking": smoking,
            "diabetes": onset <= leave,
        }
        return _bounded(values, columns, decimals=2) | {k: v.astype(np.int8) for k, v in codes.items()}

    text = "Simulated volunteers: years to a diagnosis of diabetes; 12 columns, 20 after one-hot encoding."
    return Population("diabetes_like", 474_886, Schema(columns), make, text, time="years", event="diabetes")


# -- SEER-like: survival with node-positive breast cancer -------------------------------------------------------------

# category shares, ranges and follow-up were set by looking at summaries of the public SEER extract
_RACE = {"White": 0.85, "Black": 0.07, "Other": 0.08}
_MARRIED = {"Married": 0.657, "Single": 0.153, "Divorced": 0.121, "Widowed": 0.058, "Separated": 0.011}
_STAGES = ("IIA", "IIB", "IIIA", "IIIB", "IIIC")
_DIFFERENTIATED = ("Well differentiated", "Moderately differentiated", "Poorly differentiated", "Undifferentiated")


def seer() -> Population:
    receptor = ("Negative", "Positive")
    columns = (
        Column("Age", "integer", 30, 69, unit="years"),
        Column("Race", "categorical", categories=tuple(_RACE)),
        Column("Marital Status", "categorical", categories=tuple(_MARRIED)),
        Column("T Stage", "categorical", categories=("T1", "T2", "T3", "T4")),
        Column("N Stage", "categorical", categories=("N1", "N2", "N3")),
        Column("6th Stage", "categorical", categories=_STAGES),
        Column("differentiate", "categorical", categories=_DIFFERENTIATED),
        Column("Grade", "categorical", categories=("1", "2", "3", "4")),
        Column("A Stage", "binary", categories=("Regional", "Distant")),
        Column("Tumor Size", "integer", 1, 150, unit="mm"),
        Column("Estrogen Status", "binary", categories=receptor),
        Column("Progesterone Status", "binary", categories=receptor),
        Column("Regional Node Examined", "integer", 1, 70, unit="nodes"),
        Column("Regional Node Positive", "integer", 1, 50, unit="nodes"),
        Column("months", "integer", 1, 107, unit="months"),
        yes_no("died"),
    )

    def make(rng: Rng, n: int) -> dict[str, Array]:
        spread = rng.standard_normal(n)  # how far the disease has gone: ties size, nodes and grade
        age = 30 + 39 * rng.beta(2.3, 1.5, n)
        size = np.clip(24.5 * np.exp(0.35 * spread + 0.5 * rng.standard_normal(n)), 1, 150).round()
        mean_nodes = np.exp(0.05 + 0.75 * spread + 0.95 * rng.standard_normal(n))
        positive = 1 + np.minimum(rng.poisson(mean_nodes), 45)
        examined = np.clip(positive + rng.gamma(1.9, 5.6, n).round(), 1, 70)
        grade = np.digitize(0.3 * spread + rng.standard_normal(n), [-1.15, 0.62, 2.7])
        wall = rng.random(n) < 0.012 * np.exp(spread)  # into the chest wall or skin: T4 whatever the size
        t_stage = np.where(wall, 3, np.digitize(size, [20.5, 50.5]))
        n_stage = np.digitize(positive, [4, 10])
        stage = np.select([n_stage == 2, t_stage == 3, (n_stage == 1) | (t_stage == 2)], [4, 3, 2], t_stage)
        estrogen = rng.logistic(size=n) < 3.2 - 1.3 * (grade > 1) * (grade - 1)
        progesterone = rng.logistic(size=n) < np.where(estrogen, 2.1, -1.9)
        race, married = _pick(rng, n, _RACE), _pick(rng, n, _MARRIED)
        distant = rng.random(n) < np.where(n_stage == 2, 0.12, 0.011)
        # fmt: off
        risk = (
            0.62 * np.log(positive) + 0.25 * np.log(size / 25) + 0.52 * (grade - 1) - 0.75 * estrogen
            - 0.58 * progesterone + 0.55 * (race == 1) - 0.4 * (race == 2) + 0.025 * np.maximum(age - 55, 0)
            + 0.22 * (married > 0) + 0.5 * wall + 0.2 * distant - 0.02 * (examined - 14)
        )
        # fmt: on
        death = 238 * (rng.exponential(size=n) / np.exp(1.1 * risk)) ** (1 / 1.45)
        leave = np.where(rng.random(n) < 0.07, rng.uniform(1, 107, n), rng.uniform(48, 107, n))
        values = {
            "Age": age,
            "Tumor Size": size,
            "Regional Node Examined": examined,
            "Regional Node Positive": positive,
            "months": np.ceil(np.minimum(death, leave)),
        }
        codes = {
            "Race": race,
            "Marital Status": married,
            "T Stage": t_stage,
            "N Stage": n_stage,
            "6th Stage": stage,
            "differentiate": grade,
            "Grade": grade,
            "A Stage": distant,
            "Estrogen Status": estrogen,
            "Progesterone Status": progesterone,
            "died": death <= leave,
        }
        return _bounded(values, columns, decimals=0) | {k: v.astype(np.int8) for k, v in codes.items()}

    text = "Simulated women with node-positive breast cancer: months to death; SEER's columns, spelled right."
    return Population("seer_like", 4_024, Schema(columns), make, text, time="months", event="died")
