"""The feed of the demo: flights as JSON lines in a folder."""
