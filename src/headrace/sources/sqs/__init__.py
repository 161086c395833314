"""Queues of Amazon SQS: receive, hold, delete."""
