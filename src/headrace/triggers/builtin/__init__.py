"""Triggers that Headrace includes."""
