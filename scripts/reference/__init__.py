"""Reference pages that are generated from code, one module per page.

Each module has `PAGE`, the path of its page below `docs/reference`, and `render()`, which returns the whole page as Markdown.
"""
