"""Whole histories in causal order: folders of Parquet or JSON lines, or the event log."""
