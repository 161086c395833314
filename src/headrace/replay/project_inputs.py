"""Read a project's definitions for a history: the triggers of a stream, and the paths of an event's fields."""

from __future__ import annotations

from headrace.errors import UsageError
from headrace.project import Project
from headrace.replay.options import Fields
from headrace.triggers.base import BaseEventTrigger
from headrace.triggers.watch import WatchTrigger


def on_same_stream(project: Project, watch: str | None) -> dict[str, BaseEventTrigger]:
    """Return the triggers on the stream of the trigger `watch`, or all if None. Raises `UsageError`."""
    if watch is None:
        return dict(project.triggers)
    if watch not in project.triggers:
        raise UsageError(f"The project has no trigger {watch!r}.", hint=f"It has: {', '.join(project.triggers) or 'none'}.")
    stream = project.triggers[watch].shared_stream_key()
    return {name: trigger for name, trigger in project.triggers.items() if name == watch or trigger.shared_stream_key() == stream}


def fields_of(project: Project, watch: str | None) -> Fields:
    """Return the field paths of a watch. Without a `watch`, all watches of the project must agree. Raises `UsageError`."""
    watches = {name: trigger for name, trigger in project.triggers.items() if isinstance(trigger, WatchTrigger) and watch in {None, name}}
    if not watches:
        raise UsageError(
            "The project has no watch that says where an event's fields are." if watch is None else f"There is no watch {watch!r}.",
            hint="Say it with --id, --follows and --occurred.",
        )
    said = {_fields(trigger) for trigger in watches.values()}
    if len(said) > 1:
        raise UsageError("The project's watches name different fields.", hint=f"Say which counts: --watch {next(iter(watches))}.")
    return said.pop()


def _fields(trigger: WatchTrigger) -> Fields:
    _, declared = trigger.serialize()
    if "id" not in declared:
        raise UsageError("The watch does not say which field is the id.", hint="Say it with --id.")
    return Fields(declared["id"], declared.get("follows"), declared.get("occurred"), declared.get("subject"))
