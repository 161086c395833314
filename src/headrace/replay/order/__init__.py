"""The causal order of a whole history."""
