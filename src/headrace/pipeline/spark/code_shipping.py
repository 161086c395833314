"""Make functions of the project run in Spark's Python workers, which cannot import them, on this host and on a cluster."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pyspark import SparkContext, cloudpickle

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_EXECUTOR_MODULES: Final = Path(__file__).resolve().parents[1] / "executor_modules"
PYTHON_DAEMON: Final = "headrace_python_daemon"
"""The module in `executor_modules` that starts Spark's Python workers."""


def ship_functions(functions: Iterable[Callable[..., Any]]) -> list[Path]:
    """Pickle the modules of these functions by value, and make neighbouring modules importable on this host. Return their folders.

    Functions that were defined in a notebook or a shell have no folder: they are only pickled by value.
    """
    by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    modules = [sys.modules[inspect.unwrap(function).__module__] for function in functions]
    for module in modules:
        by_value(module)
    folders = list({_import_folder(module): None for module in modules if getattr(module, "__file__", None) is not None})
    _let_workers_import(folders)
    return folders


def let_workers_start() -> None:
    """Start the Python workers of this host with PYTHON_DAEMON. On a cluster, `send_to_executors` does that."""
    _let_workers_import([_EXECUTOR_MODULES])


def _let_workers_import(folders: Iterable[Path]) -> None:
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*map(str, folders), *filter(None, before)]))


def send_to_executors(context: SparkContext, folders: Sequence[Path], work: Path) -> None:
    """Send this package, and the modules and packages in `folders`, to the hosts of a cluster. The archives are written to `work`.

    Packages that pip installed are not sent: install them on the hosts, for their processors.
    """
    installed = {Path(path) for path in sysconfig.get_paths().values()}
    sent = [_EXECUTOR_MODULES / f"{PYTHON_DAEMON}.py", _archive(work / "headrace.zip", [_PACKAGE])]
    for number, folder in enumerate(folder for folder in folders if folder not in installed):
        sent.append(_archive(work / f"project-{number}.zip", _importable(folder)))
    for archive in sent:
        context.addPyFile(str(archive))


def _import_folder(module: ModuleType) -> Path:
    """Return the folder on the import path that contains the module."""
    return Path(inspect.getfile(module)).resolve().parents[module.__name__.count(".")]


def _importable(folder: Path) -> list[Path]:
    """Return the modules and packages in a folder."""
    return [path for path in sorted(folder.iterdir()) if path.suffix == ".py" or (path / "__init__.py").is_file()]


def _archive(path: Path, contents: Iterable[Path]) -> Path:
    """Write an archive of modules and packages."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for item in contents:
            for file in [item] if item.is_file() else _files(item):
                archive.write(file, file.relative_to(item.parent))
    return path


def _files(package: Path) -> Iterator[Path]:
    """Yield the files of a package, without compiled ones."""
    return (path for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
