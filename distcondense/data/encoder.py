"""`FeatureEncoder`: features as numbers by a public schema alone, so that rows and patients come out alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from distcondense.data.codec import Codec, design_of
from distcondense.data.features import check_features, some_names
from distcondense.data.schema import Schema
from distcondense.data.tables import as_frame
from distcondense.errors import CohortError, need


class FeatureEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A scikit-learn transformer of features in original units: numbers as they are, categories one-hot.

    Nothing is learned from rows: which columns come out, and in which order, the schema says. A number outside the
    schema's bounds becomes the nearest legal one, a category that it does not have a hole (where holes are refused, the
    rows are).

    Parameters
    ----------
    schema : Schema
        Of the features.
    columns : tuple of str, optional
        Encoded columns to keep; all if not given.

    Examples
    --------
    >>> import distcondense as dc, pandas as pd
    >>> from distcondense.data.encoder import FeatureEncoder
    >>> stage = dc.Column("stage", "categorical", categories=("I", "II"), missing="category")
    >>> schema = dc.Schema((dc.Column("age", "integer", 18, 110), stage))
    >>> FeatureEncoder(schema).transform(pd.DataFrame({"age": [34, 130], "stage": ["II", "IV"]}))
         age  stage=I  stage=II  stage=missing
    0   34.0      0.0       1.0            0.0
    1  110.0      0.0       0.0            1.0
    """

    def __init__(self, schema: Schema, columns: tuple[str, ...] | None = None) -> None:
        self.schema = schema
        self.columns = columns

    def fit(self, X: Any = None, y: Any = None) -> FeatureEncoder:
        """Nothing to fit: the schema is all there is."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def transform(self, X: Any) -> pd.DataFrame:
        """(n, d) float64 of a frame of pandas, Polars or Arrow; further columns are left out.

        Raises
        ------
        CohortError
            Where a column of the schema is missing, or holds what is no value of its kind.
        """
        need(self.schema, Schema, "schema", "a Schema")
        frame = as_frame(X)
        if absent := [name for name in self.schema.names if name not in frame]:
            raise CohortError(
                "X",
                "must have every column of the schema",
                found=f"{len(absent)} missing: {some_names(absent)}",
                fix="give the columns that the condensed table has",
            )
        encoded = design_of(check_features(frame, self.schema, nearest=True), self.schema)
        return encoded.set_axis(frame.index)[self.get_feature_names_out()]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the encoded columns: `age`, `stage=II`, `bmi=missing`."""
        return np.array(Codec.plain(self.schema).names if self.columns is None else self.columns, dtype=object)
