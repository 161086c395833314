"""Store receipts and backlogs, and audit the answers that triggers owe."""
