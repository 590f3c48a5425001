"""Privacy: who pays what, by which guarantee, in which words. Imports NumPy, dp-accounting and opendp only."""
