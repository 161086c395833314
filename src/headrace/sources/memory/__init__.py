"""A queue in memory as an upstream, for tests."""
