"""`distcondense bench`: what one step costs, adapters × problems in one run, beside controls.

Every way of computing the Jacobian is timed on the same problems, interleaved with all others, so that ratios are taken
within one run on one machine. What is too slow is measured on a sample of features and scaled, and marked so.
"""

from __future__ import annotations

from distcondense.bench.problems import FULL, QUICK
from distcondense.bench.run import run_bench

__all__ = ["FULL", "QUICK", "run_bench"]
