"""Show the next messages of an upstream without acknowledging or moving anything. One module for each kind of upstream."""
