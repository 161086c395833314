"""What a connection to a service says: address, credentials and settings. Pure."""
