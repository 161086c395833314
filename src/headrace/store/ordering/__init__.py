"""Store the causal ordering in SQL."""
