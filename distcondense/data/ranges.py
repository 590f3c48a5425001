"""Public ranges of common clinical measurements by name: generous physiological limits, known without any patient.

They are proposals for a person to accept. Where a measurement has several units, which one it is must be said: by the
column's name (`creatinine_mg_dl`) or by a person, never by how large the patients' numbers are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Bounds that no living patient leaves, the unit they are in, and how it goes into the first unit and back."""

    low: float
    high: float
    unit: str
    conversion: str = ""


# words that a column's name has, in any order of letters' case → ranges, the commonest unit first
RANGES: dict[str, tuple[Range, ...]] = {
    "age": (Range(0, 120, "years"),),
    "weight|gewicht|poids": (Range(0, 400, "kg"), Range(0, 900, "lb", "1 lb = 0.4536 kg; 1 kg = 2.2 lb")),
    "height|stature": (
        Range(0, 260, "cm"),
        Range(0, 2.6, "m", "1 m = 100 cm; 1 cm = 0.01 m"),
        Range(0, 110, "in", "1 in = 2.54 cm; 1 cm = 0.394 in"),
    ),
    "bmi": (Range(5, 120, "kg/m²"),),
    "systolic|sbp|sys": (Range(0, 350, "mmHg"),),
    "diastolic|dbp|dia": (Range(0, 250, "mmHg"),),
    "map": (Range(0, 300, "mmHg"),),
    "pulse|heartrate|heart_rate|hr|hrt|puls": (Range(0, 350, "1/min"),),
    "resp|respiratory_rate|resprate|rr": (Range(0, 120, "1/min"),),
    "temp|temperature": (Range(20, 46, "°C"), Range(68, 115, "°F", "°F = 32 + 1.8 °C")),
    "spo2|sao2|saturation|o2sat": (Range(0, 100, "%"),),
    "gcs": (Range(3, 15, ""),),
    "creatinine|crea|kreatinin": (
        Range(0, 3000, "µmol/L"),
        Range(0, 35, "mg/dL", "1 mg/dL = 88.4 µmol/L; 1 µmol/L = 0.0113 mg/dL"),
    ),
    "urea|bun": (
        Range(0, 150, "mmol/L"),
        Range(0, 400, "mg/dL", "1 mg/dL of urea nitrogen = 0.357 mmol/L, of urea 0.1665"),
    ),
    "egfr|gfr": (Range(0, 250, "mL/min"),),
    "crp": (Range(0, 1000, "mg/L"),),
    "haemoglobin|hemoglobin|hb|hgb": (Range(0, 30, "g/dL"), Range(0, 300, "g/L", "1 g/L = 0.1 g/dL; 1 g/dL = 10 g/L")),
    "haematocrit|hematocrit|hct": (Range(0, 100, "%"),),
    "sodium|na": (Range(80, 220, "mmol/L"),),
    "potassium|k": (Range(0, 15, "mmol/L"),),
    "chloride": (Range(50, 180, "mmol/L"),),
    "calcium|ca": (Range(0, 10, "mmol/L"), Range(0, 30, "mg/dL", "1 mg/dL = 0.2495 mmol/L; 1 mmol/L = 4.01 mg/dL")),
    "glucose": (Range(0, 120, "mmol/L"), Range(0, 2200, "mg/dL", "1 mg/dL = 0.0555 mmol/L; 1 mmol/L = 18 mg/dL")),
    "hba1c": (Range(2, 25, "%"), Range(0, 250, "mmol/mol", "% = 2.15 + 0.0915 mmol/mol")),
    "lactate|lactat": (Range(0, 40, "mmol/L"), Range(0, 360, "mg/dL", "1 mg/dL = 0.111 mmol/L; 1 mmol/L = 9.01 mg/dL")),
    "procalcitonin|pct": (Range(0, 2000, "µg/L"), Range(0, 2000, "ng/mL", "1 ng/mL = 1 µg/L")),
    "wbc|wblc|leukocytes|leucocytes": (
        Range(0, 1000, "10⁹/L"),
        Range(0, 1_000_000, "1/µL", "1 /µL = 0.001 10⁹/L; 10⁹/L = 1000 /µL"),
    ),
    "neutrophils": (Range(0, 500, "10⁹/L"),),
    "lymphocytes": (Range(0, 1000, "10⁹/L"),),
    "platelets|plt|thrombocytes": (
        Range(0, 3000, "10⁹/L"),
        Range(0, 3_000_000, "1/µL", "1 /µL = 0.001 10⁹/L; 10⁹/L = 1000 /µL"),
    ),
    "albumin": (Range(0, 80, "g/L"), Range(0, 8, "g/dL", "1 g/dL = 10 g/L; 1 g/L = 0.1 g/dL")),
    "bilirubin|bili|tbil": (
        Range(0, 1200, "µmol/L"),
        Range(0, 70, "mg/dL", "1 mg/dL = 17.1 µmol/L; 1 µmol/L = 0.0585 mg/dL"),
    ),
    "alt|ast|ggt|alp|ldh|ck": (Range(0, 50_000, "U/L"),),
    "inr": (Range(0, 30, ""),),
    "aptt|ptt": (Range(0, 400, "s"),),
    "fibrinogen": (Range(0, 30, "g/L"), Range(0, 3000, "mg/dL", "1 mg/dL = 0.01 g/L; 1 g/L = 100 mg/dL")),
    "d_dimer|ddimer": (Range(0, 500, "mg/L"), Range(0, 500_000, "µg/L", "1 µg/L = 0.001 mg/L; 1 mg/L = 1000 µg/L")),
    "tsh": (Range(0, 1000, "mU/L"), Range(0, 1000, "µU/mL", "1 µU/mL = 1 mU/L")),
    "ft4|free_t4|free_thyroxine": (
        Range(0, 250, "pmol/L"),
        Range(0, 20, "ng/dL", "1 ng/dL = 12.87 pmol/L; 1 pmol/L = 0.0777 ng/dL"),
    ),
    "tt4|t4|thyroxine": (
        Range(0, 700, "nmol/L"),
        Range(0, 55, "µg/dL", "1 µg/dL = 12.87 nmol/L; 1 nmol/L = 0.0777 µg/dL"),
    ),
    "ft3|free_t3": (Range(0, 100, "pmol/L"), Range(0, 65, "pg/mL", "1 pg/mL = 1.536 pmol/L; 1 pmol/L = 0.651 pg/mL")),
    "tt3|t3|triiodothyronine": (
        Range(0, 30, "nmol/L"),
        Range(0, 2000, "ng/dL", "1 ng/dL = 0.01536 nmol/L; 1 nmol/L = 65.1 ng/dL"),
    ),
    "t4u": (Range(0, 5, ""),),
    "fti": (Range(0, 1000, ""),),
    "tbg": (Range(0, 500, "mg/L"), Range(0, 50, "mg/dL", "1 mg/dL = 10 mg/L; 1 mg/L = 0.1 mg/dL")),
    "cortisol": (Range(0, 10_000, "nmol/L"), Range(0, 360, "µg/dL", "1 µg/dL = 27.6 nmol/L; 1 nmol/L = 0.0362 µg/dL")),
    "pao2|po2": (Range(0, 100, "kPa"), Range(0, 750, "mmHg", "1 mmHg = 0.1333 kPa; 1 kPa = 7.5 mmHg")),
    "paco2|pco2": (Range(0, 40, "kPa"), Range(0, 300, "mmHg", "1 mmHg = 0.1333 kPa; 1 kPa = 7.5 mmHg")),
    "fio2": (Range(0.15, 1, ""), Range(15, 100, "%", "1% = 0.01")),
    "pafi": (Range(0, 1000, "mmHg"), Range(0, 133, "kPa", "1 kPa = 7.5 mmHg; 1 mmHg = 0.1333 kPa")),
    "bicarbonate|hco3|bicarb": (Range(0, 80, "mmol/L"),),
    "base_excess": (Range(-60, 60, "mmol/L"),),
    "anion_gap": (Range(-20, 80, "mmol/L"),),
    "osmolality": (Range(150, 600, "mOsm/kg"),),
    "magnesium|mg": (Range(0, 10, "mmol/L"), Range(0, 25, "mg/dL", "1 mg/dL = 0.4114 mmol/L; 1 mmol/L = 2.43 mg/dL")),
    "phosphate|phosphorus": (
        Range(0, 10, "mmol/L"),
        Range(0, 31, "mg/dL", "1 mg/dL = 0.323 mmol/L; 1 mmol/L = 3.1 mg/dL"),
    ),
    "uric_acid|urate": (
        Range(0, 3000, "µmol/L"),
        Range(0, 50, "mg/dL", "1 mg/dL = 59.5 µmol/L; 1 µmol/L = 0.0168 mg/dL"),
    ),
    "ammonia": (Range(0, 3000, "µmol/L"), Range(0, 5100, "µg/dL", "1 µg/dL = 0.587 µmol/L; 1 µmol/L = 1.7 µg/dL")),
    "bnp": (Range(0, 100_000, "ng/L"), Range(0, 100_000, "pg/mL", "1 pg/mL = 1 ng/L")),
    "psa": (Range(0, 20_000, "µg/L"), Range(0, 20_000, "ng/mL", "1 ng/mL = 1 µg/L")),
    "lipase|amylase": (Range(0, 50_000, "U/L"),),
    "urine|urine_output": (Range(0, 30_000, "mL/24 h"),),
    "sofa": (Range(0, 24, ""),),
    "nyha": (Range(1, 4, ""),),
    "education|years_of_schooling": (Range(0, 40, "years"),),
    "ejection_fraction|lvef|ef": (Range(0, 100, "%"), Range(0, 1, "", "0.01 = 1%")),
    "probability|prob|risk|fraction": (Range(0, 1, ""), Range(0, 100, "%", "1% = 0.01")),
    "ph": (Range(6, 8.2, ""),),
    "cholesterol|ldl|hdl|triglycerides": (
        Range(0, 60, "mmol/L"),
        Range(0, 5000, "mg/dL", "1 mg/dL = 0.0259 mmol/L, of triglycerides 0.0113"),
    ),
    "troponin": (Range(0, 200_000, "ng/L"),),
    "ferritin": (Range(0, 200_000, "µg/L"),),
}


def ranges_of(name: str) -> tuple[Range, ...]:
    """What is known about a column of that name, one range where the name says the unit; empty where nothing is."""
    words, units = _words(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)), _words(name)
    for known, found in RANGES.items():
        if any(re.search(rf"(^|_){word}(_|$)", words) for word in known.split("|")):
            said = [one for one in found if one.unit and re.search(rf"_{_words(one.unit)}(_|$)", units)]
            return tuple(said[:1]) or found
    return ()


def range_in(name: str, unit: str) -> Range | None:
    """The range of that name in a unit, however it is written (umol/l)."""
    return next((one for one in ranges_of(name) if _words(one.unit) == _words(unit)), None)


def _words(text: str) -> str:
    """In small letters, with _ between words; what keyboards lack is written as people do."""
    plain = text.strip().replace("µ", "u").replace("μ", "u").lstrip("°")
    return re.sub(r"[^A-Za-z0-9]+", "_", plain).lower()
