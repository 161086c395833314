"""Compare the shared streams of Headrace and Airflow under the same load: `make bench-streams`. See docs/design/benchmarks.md."""
