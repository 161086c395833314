"""Access one database: many readers, one writer, and a notification of every commit."""
