"""Hospitals together: one condensed table from several sites that share nothing but masked sums (docs/federated.md)."""
