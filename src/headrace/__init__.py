"""Headrace runs PySpark pipelines on events."""
