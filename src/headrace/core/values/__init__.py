"""Values, texts and moments of users' code and events, bounded and safe to store."""
