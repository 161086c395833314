"""Checks before every route: access, rates, body sizes, protocol version."""
