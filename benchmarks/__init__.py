"""Measurements, not tests: each module prints one table and says how it was made. Run from the repository's root."""
