"""The runner's side of trigger processes: which trigger and producer runs in which, and what it says."""
