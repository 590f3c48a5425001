"""Public ranges of common clinical measurements by name: generous physiological limits, known without any patient.

They are proposals for a person to accept. Where a measurement has several units, the first range is taken that holds
every value of the column; which one that is says no more than the unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """Bounds that no living patient leaves, and the unit they are in."""

    low: float
    high: float
    unit: str


# words that a column's name has, in any order of letters' case → ranges, the commonest unit first
RANGES: dict[str, tuple[Range, ...]] = {
    "age": (Range(0, 120, "years"),),
    "weight|gewicht|poids": (Range(0, 400, "kg"), Range(0, 900, "lb")),
    "height|stature": (Range(0, 260, "cm"), Range(0, 2.6, "m"), Range(0, 110, "in")),
    "bmi": (Range(5, 120, "kg/m²"),),
    "systolic|sbp|sys": (Range(0, 350, "mmHg"),),
    "diastolic|dbp|dia": (Range(0, 250, "mmHg"),),
    "map": (Range(0, 300, "mmHg"),),
    "pulse|heartrate|heart_rate|hr": (Range(0, 350, "1/min"),),
    "resp|respiratory_rate|rr": (Range(0, 120, "1/min"),),
    "temp|temperature": (Range(20, 46, "°C"), Range(68, 115, "°F")),
    "spo2|sao2|saturation|o2sat": (Range(0, 100, "%"),),
    "gcs": (Range(3, 15, ""),),
    "creatinine|crea|kreatinin": (Range(0, 3000, "µmol/L"), Range(0, 35, "mg/dL")),
    "urea|bun": (Range(0, 150, "mmol/L"), Range(0, 400, "mg/dL")),
    "egfr|gfr": (Range(0, 250, "mL/min"),),
    "crp": (Range(0, 1000, "mg/L"),),
    "haemoglobin|hemoglobin|hb|hgb": (Range(0, 30, "g/dL"), Range(0, 300, "g/L")),
    "haematocrit|hematocrit|hct": (Range(0, 100, "%"),),
    "sodium|na": (Range(80, 220, "mmol/L"),),
    "potassium|k": (Range(0, 15, "mmol/L"),),
    "chloride": (Range(50, 180, "mmol/L"),),
    "calcium|ca": (Range(0, 10, "mmol/L"), Range(0, 30, "mg/dL")),
    "glucose": (Range(0, 120, "mmol/L"), Range(0, 2200, "mg/dL")),
    "hba1c": (Range(2, 25, "%"), Range(0, 250, "mmol/mol")),
    "lactate": (Range(0, 40, "mmol/L"),),
    "wbc|leukocytes|leucocytes": (Range(0, 1000, "10⁹/L"),),
    "neutrophils": (Range(0, 500, "10⁹/L"),),
    "lymphocytes": (Range(0, 1000, "10⁹/L"),),
    "platelets|plt|thrombocytes": (Range(0, 3000, "10⁹/L"), Range(0, 3_000_000, "1/µL")),
    "albumin": (Range(0, 80, "g/L"), Range(0, 8, "g/dL")),
    "bilirubin": (Range(0, 1200, "µmol/L"), Range(0, 70, "mg/dL")),
    "alt|ast|ggt|alp|ldh|ck": (Range(0, 50_000, "U/L"),),
    "inr": (Range(0, 30, ""),),
    "ph": (Range(6, 8.2, ""),),
    "cholesterol|ldl|hdl|triglycerides": (Range(0, 60, "mmol/L"), Range(0, 5000, "mg/dL")),
    "troponin": (Range(0, 200_000, "ng/L"),),
    "ferritin": (Range(0, 200_000, "µg/L"),),
}


def ranges_of(name: str) -> tuple[Range, ...]:
    """What is known about a column of that name; empty where nothing is."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", "_", name).lower()
    for known, found in RANGES.items():
        if any(re.search(rf"(^|_){word}(_|$)", words) for word in known.split("|")):
            return found
    return ()


def range_for(name: str, low: float, high: float) -> Range | None:
    """The first range of that name that holds everything between these two."""
    return next((one for one in ranges_of(name) if one.low <= low and high <= one.high), None)
