"""Hostile data for `make soak-hostile`: odd raw events, file names, trigger behaviours and producer behaviours, each with a name."""
