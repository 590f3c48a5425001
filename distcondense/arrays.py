"""Array aliases, once for the whole house. Shapes are in docstrings: (n, d) rows × columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]  # (m, d) encoded rows, as models see them
Index = NDArray[np.int64]  # row numbers, or codes that count from 0
Codes = NDArray[np.integer[Any]]  # public cells, in whatever integer holds them
Labels = NDArray[np.int8]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.floating[Any]]  # scores of a model, float32 or float64
Marks = NDArray[np.uint64]  # hashes of rows and persons
