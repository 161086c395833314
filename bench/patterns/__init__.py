"""Benchmark of event patterns: the index, beside a naive evaluator and Airflow's Python filters."""
