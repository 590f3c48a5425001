"""A hospital's export as it comes: record numbers, dates as dd/mm/yyyy, ?, −9 and 999 for missing, several visits each.

Columns called weight and risk, free text, an outcome. `canaries` are texts that must never leave the custodian's.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd

REMARK = "lives above the bakery"


def export(persons: int = 500, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    visits = rng.integers(1, 5, persons)
    who = np.repeat(np.arange(persons), visits)
    rows = len(who)
    born = (1930 + rng.integers(0, 60, persons))[who]
    birth = [dt.date(int(year), 1 + k % 12, 1 + k % 28) for k, year in zip(who, born, strict=True)]
    seen = [dt.date(2019, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 1500, rows)]
    weight = np.round(rng.normal(75, 12, rows).clip(40, 160), 1)
    crp = np.round(rng.gamma(1.5, 20, rows).clip(0.1, 400), 1)
    creatinine = rng.integers(40, 220, rows)
    risk = rng.choice(["low", "middle", "high"], rows)
    logit = -1 + 0.06 * (crp - 30) + 0.03 * (creatinine - 130) + 0.06 * (2019 - born - 60)
    died = np.where(rng.random(rows) < 1 / (1 + np.exp(-logit)), "yes", "no")
    crp_text = np.where(rng.random(rows) < 0.05, "?", crp.astype(str))
    return pd.DataFrame(
        {
            "record_no": [f"MRN{7_300_000 + 13 * k}" for k in who],
            "birth_date": [d.strftime("%d/%m/%Y") for d in birth],
            "visit_date": [d.strftime("%d/%m/%Y") for d in seen],
            "sex": rng.choice(["f", "m"], rows),
            "weight": np.where(rng.random(rows) < 0.06, 999, weight),
            "crp": crp_text,
            "creatinine": np.where(rng.random(rows) < 0.05, -9, creatinine),
            "risk": risk,
            "remark": [f"{REMARK} no {k} since {w}" for k, w in enumerate(weight)],
            "died": died,
        }
    )


def canaries(frame: pd.DataFrame) -> set[str]:
    """Record numbers, dates and remarks, as they are written."""
    return {str(value) for name in ("record_no", "birth_date", "visit_date", "remark") for value in frame[name]} | {
        REMARK
    }
