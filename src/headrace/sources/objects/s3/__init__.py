"""Buckets of S3 through its client library."""
