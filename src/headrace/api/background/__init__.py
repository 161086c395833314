"""Background work of the API: webhooks and task runs that wait for events."""
