"""Event patterns as Spark Columns over the rows of a history. Executors evaluate them without Python."""
