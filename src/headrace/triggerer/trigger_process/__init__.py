"""Processes that run users' triggers."""
