"""Causal ordering for events of any program: the public class, and the store in memory."""
