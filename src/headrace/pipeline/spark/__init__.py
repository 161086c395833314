"""Spark sessions, clusters and errors."""
