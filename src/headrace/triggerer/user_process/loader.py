"""Make a trigger of a workload."""

from __future__ import annotations

from importlib import import_module

from headrace.core.values.text import describe_error
from headrace.errors import HeadraceError, ProjectError
from headrace.triggers.base import BaseTrigger
from headrace.triggers.import_allowlist import IMPORT_ALLOWLIST
from headrace.wire.control.triggers import RunTrigger


def trigger_class(workload: RunTrigger) -> type[BaseTrigger]:
    """Import the workload's class.

    Raises:
        ProjectError: The class is of a module that is not allowed, cannot be imported, or is no trigger.
    """
    if workload.trouble is not None:
        raise ProjectError(f"Trigger '{workload.name}' cannot be loaded: {workload.trouble}")
    return import_trigger(workload.classpath, f"Trigger '{workload.name}'")


def import_trigger(classpath: str, what: str) -> type[BaseTrigger]:
    """Import a trigger class; `what` names who wants it. Raises `ProjectError` as `trigger_class` does."""
    IMPORT_ALLOWLIST.check(classpath, what)
    module, _, name = classpath.rpartition(".")
    try:
        kind = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProjectError(
            f"{what} cannot be loaded: {classpath} cannot be imported ({error}).",
            hint="Is the module that defines it installed here, or in the project's folder?",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, BaseTrigger)):
        raise ProjectError(f"{what} cannot be loaded: {classpath} is not a subclass of BaseTrigger.")
    return kind


def load_trigger(workload: RunTrigger) -> BaseTrigger:
    """Import the workload's class and make the trigger.

    Raises:
        ProjectError: There is no such class, or it does not take these arguments.
    """
    kind = trigger_class(workload)
    try:
        return kind(**workload.kwargs)
    except HeadraceError:
        raise
    except Exception as error:  # a user's constructor may raise anything
        raise ProjectError(f"Trigger '{workload.name}' cannot be made: {describe_error(error)}") from error
