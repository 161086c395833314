"""Receipts, backlogs and dead letters on the wire."""
