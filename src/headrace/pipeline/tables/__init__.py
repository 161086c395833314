"""Tables of pipelines, as Parquet or Delta."""
