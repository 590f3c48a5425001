"""`condense` and `evaluate`: check · run · record · write. What differs between methods and outcomes is theirs."""

from distcondense.api.condensing import condense as condense
from distcondense.api.evaluating import evaluate as evaluate
from distcondense.api.evaluating import evaluate_run as evaluate_run
