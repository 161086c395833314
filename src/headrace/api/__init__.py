"""The only package that imports FastAPI: routes, pages, metrics."""
