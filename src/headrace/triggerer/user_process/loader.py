"""Load the trigger of a workload."""

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
        ProjectError: The class's module is not allowed, it cannot be imported, or it is not a trigger class.
    """
    if workload.load_error is not None:
        raise ProjectError(f"Trigger '{workload.name}' cannot be loaded: {workload.load_error}")
    return import_trigger(workload.classpath, f"Trigger '{workload.name}'")


def import_trigger(classpath: str, what: str) -> type[BaseTrigger]:
    """Import a trigger class. `what` names its user in errors. Raises `ProjectError` as `trigger_class` does."""
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
    """Import the workload's class and create the trigger.

    Raises:
        ProjectError: The class does not exist, or does not accept these arguments.
    """
    kind = trigger_class(workload)
    try:
        return kind(**workload.kwargs)
    except HeadraceError:
        raise
    except Exception as error:  # a user's constructor may raise anything
        raise ProjectError(f"Trigger '{workload.name}' cannot be made: {describe_error(error)}") from error
