"""The outbox: what is to be stored, in order, until the API has stored it."""
