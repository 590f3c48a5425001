"""The published method."""
