"""Run folders, atomic files, results."""
