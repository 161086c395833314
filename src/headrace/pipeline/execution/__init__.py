"""Execute planned runs, and report their outcomes."""
