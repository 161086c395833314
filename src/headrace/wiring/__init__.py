"""Composition roots: one module for each process."""
