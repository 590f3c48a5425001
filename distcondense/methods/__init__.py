"""One file a method, one interface: (cohort, split, settings, …) → `Condensed`."""
