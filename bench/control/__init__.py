"""Benchmarks of the control plane."""
