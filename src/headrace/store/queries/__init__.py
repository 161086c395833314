"""Queries for people: status, lists and pages."""
