"""Jobs, leases, triggers and projects."""
