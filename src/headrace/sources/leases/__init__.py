"""Readers of queues that lease messages: receive, hold, acknowledge, give back."""
