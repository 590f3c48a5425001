"""How like the real table the condensed one is: columns, pairs, whole rows, composite scores."""
