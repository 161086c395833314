"""Queries of the administration API: status, lists and pages."""
