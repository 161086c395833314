"""Protocols, narrow, owned by those who need them."""
