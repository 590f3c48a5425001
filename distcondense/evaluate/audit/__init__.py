"""Attacks on the mechanisms themselves."""
