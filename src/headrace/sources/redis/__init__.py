"""Streams of Redis and Valkey: one consumer group, read under a lease."""
