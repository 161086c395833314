"""Benchmarks of causal ordering and of pipelines."""
