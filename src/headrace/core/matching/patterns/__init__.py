"""Event patterns in the form of EventBridge, and the index that returns the watches whose pattern an event matches. Pure."""
