"""Retention: deletes what is older than it must be kept."""
