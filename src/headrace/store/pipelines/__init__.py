"""Scopes, plans and runs of pipelines."""
