"""The tables of the database, by aggregate."""
