"""Senders of copies of dead letters, one module for each broker."""
