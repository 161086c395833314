"""Payload columns: their schemas, declared or inferred, and the parser."""
