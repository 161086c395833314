"""HTTP: sessions, bodies, and the meaning of a response."""
