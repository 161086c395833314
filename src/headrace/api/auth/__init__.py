"""Authentication: the deployment key, tokens, and the login page."""
