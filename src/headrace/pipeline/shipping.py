"""Let Spark's Python workers run functions of the project file, which they cannot import."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle


def ship(functions: Iterable[Callable[..., Any]]) -> None:
    """Send the modules of these functions along by value, and let what lies beside them be imported."""
    unwrapped = [inspect.unwrap(function) for function in functions]
    by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    for module in {sys.modules[function.__module__] for function in unwrapped}:
        by_value(module)
    folders = {str(Path(inspect.getfile(function)).parent): None for function in unwrapped}
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
