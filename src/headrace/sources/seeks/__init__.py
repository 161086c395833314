"""Seeks: where the lanes of an upstream are read next if an operator moves them. Each kind that has positions has a module."""
