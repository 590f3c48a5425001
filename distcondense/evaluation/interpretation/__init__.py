"""Whether models of both tables say the same: attributions, hazard ratios, curves."""
