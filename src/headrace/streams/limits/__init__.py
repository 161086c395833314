"""Limits of a shared stream: flow control and deadlines."""
