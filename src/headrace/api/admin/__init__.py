"""The admin API: for people, the page and the command line."""
