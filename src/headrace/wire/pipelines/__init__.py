"""Scopes, plans and runs of pipelines on the wire."""
