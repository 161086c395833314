"""Messages and channels between supervisor, runner, trigger processes and producer processes."""
