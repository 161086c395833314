"""Histories: Parquet, JSON lines, or the event log."""
