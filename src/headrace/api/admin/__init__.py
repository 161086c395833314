"""The admin API: for users, the status page and the command line."""
