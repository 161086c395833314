"""Jobs, triggerers, triggers and shared streams on the wire."""
