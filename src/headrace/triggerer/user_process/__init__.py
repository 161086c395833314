"""The child side of trigger processes: it runs what users wrote."""
