"""Causal order: the pure core, its durable form, and the delivery of released events."""
