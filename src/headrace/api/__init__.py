"""The only home of FastAPI: routes, pages, metrics."""
