"""Receipts, backlogs and the audit of what triggers owe."""
