"""`make exhaustive`: hostile input by every way in; no traceback, no patient's value shown, no half-written file.

`python -m tests.fuzz --cases 20000 --seed 1` prints the seed, the cases by way and every fault with its own seed;
`--way NAME --case SEED` runs one again. A short run of it is a test (tests/fuzz/test_fuzz.py).
"""
