"""Signatures and credentials of HTTP requests: schemes of senders, and the one scheme that Headrace itself sends with."""
