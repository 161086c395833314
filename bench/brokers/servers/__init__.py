"""The brokers of the benchmark, each with its server and its clients."""
