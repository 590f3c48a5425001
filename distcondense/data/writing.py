"""Numbers and category codes as the columns of a released table: a whole number is written `37`, also beside holes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats
from distcondense.data.schema import Column


def written_numbers(column: Column, numbers: Floats) -> Any:
    """(m,) legal numbers, NaN for a hole: whole ones as int64, beside holes as Int64."""
    if not column.whole:
        return numbers
    holes = np.isnan(numbers)
    whole = np.where(holes, 0, numbers).astype(np.int64)
    return pd.arrays.IntegerArray(whole, holes) if holes.any() else whole


def written_labels(column: Column, codes: Codes) -> pd.Series[Any]:
    """(m,) the categories' own labels; the code after the last one is a hole."""
    labels = np.empty(len(column.categories) + 1, object)
    labels[:-1] = column.categories
    values = pd.Series(labels[codes], dtype=object)
    if not values.isna().any():
        return values.infer_objects()
    # pandas would make 1.0 of 1 beside a hole
    return values.astype("Int64") if all(type(label) is int for label in column.categories) else values
