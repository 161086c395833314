"""Parquet tables: a folder of files, whose small files are merged in the background."""
