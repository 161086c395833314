"""Match patterns and envelopes: which raw events a declared watch selects, and which fields become the event's."""
