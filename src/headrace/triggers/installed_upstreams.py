"""Upstreams of installed distributions, which declare them as entry points of the group `headrace.upstreams`.

An entry point is loaded when its upstream is used. One that does not load affects no other.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Final

from headrace.core.values.text import describe_error
from headrace.errors import HeadraceError, ProjectError
from headrace.triggers.upstream import Upstream

GROUP: Final = "headrace.upstreams"


def make_upstream(name: str, /, *arguments: Any, **keywords: Any) -> Upstream:
    """Return the upstream that an installed distribution declares under `name`, created with these arguments.

    Raises:
        ProjectError: No distribution or several declare the name, it does not load, is not an `Upstream`, or
            rejects the arguments.
    """
    entry = _entry_point(name)
    kind = _load(entry)
    try:
        return kind(*arguments, **keywords)
    except HeadraceError:
        raise
    except Exception as error:  # a constructor of a user may raise anything
        raise ProjectError(
            f"The upstream {name!r} of {_distribution(entry)} cannot be made: {describe_error(error)}",
            hint=f"See the arguments of {entry.value}.",
        ) from error


def installed_modules() -> set[str]:
    """Return the modules that the entry points name. Imports none of them."""
    return {_module(entry) for entry in entry_points(group=GROUP)} - {""}


def _entry_point(name: str) -> EntryPoint:
    installed = entry_points(group=GROUP)
    matches = installed.select(name=name)
    if not matches:
        raise ProjectError(f"No installed distribution declares the upstream {name!r}.", hint=_known(installed))
    if len(matches) > 1:
        owners = ", ".join(sorted(_distribution(entry) for entry in matches))
        raise ProjectError(f"Several distributions declare the upstream {name!r}: {owners}.", hint="Uninstall all but one of them.")
    return next(iter(matches))


def _load(entry: EntryPoint) -> type[Upstream]:
    subject = f"The upstream {entry.name!r} of {_distribution(entry)}"
    if not _module(entry):
        raise ProjectError(f"{subject} cannot be loaded: {entry.value!r} is not a module and a class.", hint="Write it as module:Class.")
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        raise ProjectError(
            f"{subject} cannot be loaded: {entry.value}: {describe_error(error)}", hint="Is the distribution complete? Install it again."
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Upstream)):
        raise ProjectError(f"{subject} cannot be loaded: {entry.value} is not a subclass of headrace.Upstream.")
    return kind


def _module(entry: EntryPoint) -> str:
    """Return the module that an entry point names, or an empty text if it names none."""
    module = entry.value.partition(":")[0].strip()
    return module if all(part.isidentifier() for part in module.split(".")) else ""


def _distribution(entry: EntryPoint) -> str:
    return "an unknown distribution" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _known(installed: EntryPoints) -> str:
    names = ", ".join(sorted(installed.names)) or "none"
    return f"Declared in the group {GROUP}: {names}. Install the distribution that has it."
