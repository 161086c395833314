"""Values, texts and times of users' code and events, bounded and safe to store."""
