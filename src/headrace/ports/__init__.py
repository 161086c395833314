"""Narrow protocols, owned by their callers."""
