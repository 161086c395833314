"""What goes over HTTP, as typed models that both ends import. Depends on `core` and `errors` only."""
