"""Changes of PostgreSQL tables as an upstream, through a logical replication slot."""
