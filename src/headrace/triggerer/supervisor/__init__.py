"""The supervisor: holds a job and its leases, starts the runner, and is the only process with a token."""
