"""The status of an installation on the wire."""
