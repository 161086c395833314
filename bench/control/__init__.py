"""The control plane under load: `make bench-control`. See docs/design/benchmarks.md."""
