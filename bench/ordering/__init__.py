"""Benchmarks of the ordering."""
