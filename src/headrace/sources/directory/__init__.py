"""A folder as an upstream."""
