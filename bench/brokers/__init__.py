"""Brokers to stored and advanced events, beside a bare client."""
