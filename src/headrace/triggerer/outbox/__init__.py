"""The outbox: items to store, in order, until the API has stored them."""
