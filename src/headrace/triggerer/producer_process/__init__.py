"""Processes that run users' producers."""
