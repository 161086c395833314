"""The command groups, one module each."""
