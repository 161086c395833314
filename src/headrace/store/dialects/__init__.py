"""SQLite and PostgreSQL: connections, and statements that differ."""
