"""Headrace's shared streams and Airflow's, under one load: `make bench-streams`. See docs/design/benchmarks.md."""
