"""Requests of senders as an upstream: what `headrace receive` has accepted, read from its queue."""
