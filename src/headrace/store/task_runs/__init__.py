"""Task runs, and the events that they wait for."""
