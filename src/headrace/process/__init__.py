"""Api, triggerer and pipeline as supervised processes on one machine."""
