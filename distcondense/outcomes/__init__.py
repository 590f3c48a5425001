"""Kinds of outcome."""
