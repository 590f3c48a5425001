"""How good a condensed set is, on real rows it never saw: every number with its interval."""
