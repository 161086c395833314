"""Causal ordering for anybody's events: the surface, and the home in memory."""
