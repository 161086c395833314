"""The only home of PySpark: source, ordering, sinks, runs."""
