"""HTTP of the API: routes of wire models, problems, commits."""
