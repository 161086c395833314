"""One database: many readers, one writer, commits that are announced."""
