"""A queue in one SQLite file as an upstream."""
