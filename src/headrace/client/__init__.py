"""The HTTP clients that the triggerer, the pipeline and the command line use."""
