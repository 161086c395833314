"""The report of the demo: an independent check of the tables, and a chart."""
