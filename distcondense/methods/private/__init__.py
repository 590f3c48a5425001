"""The private method."""
