"""The ordering in SQL."""
