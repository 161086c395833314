"""Modules that Spark's executors get as single files: they import nothing of this package."""
