"""What is condensed against: one small protocol, and the models that satisfy it."""
