"""Runs of pipelines: planned, executed, reported."""
