"""Queues and subscriptions of Azure Service Bus: receive, lock, complete. Not run against the service itself."""
