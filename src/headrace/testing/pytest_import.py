"""Import pytest, which is not a dependency of Headrace, for the modules of this package that need it."""

from __future__ import annotations

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "The contract suite and the fixtures of headrace.testing need pytest. Install it: pip install pytest", name=error.name
    ) from error

__all__ = ["pytest"]
