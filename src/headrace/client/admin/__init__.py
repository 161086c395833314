"""The admin API as the command line calls it."""
