"""The ordering of a scope: from batches of the log to plans of runs."""
