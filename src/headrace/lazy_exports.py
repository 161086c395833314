"""Import the public names of a package when they are first used, as its stub lists them.

Type checkers read the stub, `__init__.pyi`. It is the only list of the names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from typing import Any, TypeAlias

Exports: TypeAlias = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy_exports(package: str) -> Exports:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, which may lie in an archive, as it does on a cluster's executors.

    Raises:
        ImportError: The package has no stub.
    """
    stub = get_data(package, "__init__.pyi")
    if stub is None:
        raise ImportError(f"The package {package!r} has no __init__.pyi.", name=package)
    modules = {
        alias.name: node.module
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname == alias.name
    }

    def load(name: str) -> Any:
        if (module := modules.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(modules)
    return load, lambda: names, names
