"""The worker: claims task runs and executes them."""
