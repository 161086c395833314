"""Ordering stores in a database of their own, without the API server."""
