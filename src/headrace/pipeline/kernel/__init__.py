"""The ordering of whole batches in columns."""
