"""What the compactions of all formats share: which files they merge, and the locks of a table."""
