"""Connections, variables, tokens, and the keys that encrypt them."""
