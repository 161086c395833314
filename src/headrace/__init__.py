"""Headrace runs PySpark pipelines on events.

`__init__.pyi` lists the public names. Each is imported when it is first used, so that `import headrace` is quick.
"""

from __future__ import annotations

from importlib.metadata import version as _version
from typing import Any

from headrace.lazy_exports import lazy_exports as _lazy_exports

_load, _names, __all__ = _lazy_exports(__name__)


def __getattr__(name: str) -> Any:
    return _version(__name__) if name == "__version__" else _load(name)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
