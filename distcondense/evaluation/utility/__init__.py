"""What models get out of a condensed table: students, subgroups, other sites, imbalance."""
