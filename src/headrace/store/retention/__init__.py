"""Retention: delete rows that have exceeded their retention."""
