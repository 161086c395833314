"""Dead letters of triggers and pipelines."""
