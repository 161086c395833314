"""Every exception Headrace raises on purpose, drawn once.

A docstring is the default message. `HeadraceError` carries what to do (`hint`), so that a command line can show
one clear message instead of a traceback.

    HeadraceError
    ├── UsageError            the user asked for something that cannot be
    │   ├── ProjectError      a project file that does not import or declares nonsense
    │   ├── SettingsError     a setting that does not parse or contradicts another
    │   ├── UpstreamError     an upstream that cannot be opened as described
    │   ├── SecretError       a connection or variable that is not there or cannot be used
    │   └── JavaError         no Java 17 or newer
    ├── ResourceError         the machine refuses: a port in use, a full or read-only disk
    │   ├── StorageFull       the database's disk is full, read-only or broken
    │   └── StorageBusy       the database does not answer now
    ├── SchemaError           the database has a schema this version does not know
    ├── EventError            one raw event cannot become an event
    │   ├── MalformedEvent    not the JSON it should be
    │   ├── MissingField      a declared field is absent
    │   │   └── WrongField    it is there, and is not what it has to be
    │   ├── EventArrivedEarly its leader was not handled yet: it waits
    │   └── EventAlreadySeen  it was handled, or is being handled now
    ├── StreamError           a shared stream ended or refused
    │   ├── StreamEnded       the poll ended, with or without a cause
    │   ├── SubscriberOverflow a subscriber's queue was full and the policy is to fail it
    │   └── AckTimeout        a subscriber did not answer in time
    ├── ApiError              the api answered with a problem
    │   ├── ApiUnavailable    transient: try again (connection, timeout, 5xx, 429)
    │   └── ApiRefused        permanent: the request itself is wrong (4xx)
    │       └── Fenced        a newer owner holds the lease, or the job has ended
    ├── PipelineError         a pipeline or its output failed
    │   ├── TypeConflict      a value does not have the type of its column or field
    │   ├── RunTooLarge       the events of a run do not fit in memory
    │   └── RunConflict       a table has other events for a run than the run itself
    ├── IllegalStep           a task run cannot do this from the state that it is in
    ├── TaskCancelled         the task run was cancelled while a worker ran it
    └── ProcessFailed         a supervised process keeps failing
"""

from __future__ import annotations

from inspect import cleandoc


class HeadraceError(Exception):
    """Something went wrong in Headrace."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or cleandoc(type(self).__doc__ or ""))
        self.hint = hint


class UsageError(HeadraceError):
    """What was asked for cannot be done."""


class ProjectError(UsageError):
    """The project file cannot be used."""


class SettingsError(UsageError):
    """A setting cannot be used."""


class UpstreamError(UsageError):
    """The upstream cannot be opened as it is described."""


class SecretError(UsageError):
    """The connection or variable cannot be used."""


class JavaError(UsageError):
    """PySpark needs Java 17 or newer, and none was found."""


class ResourceError(HeadraceError):
    """The machine refused what Headrace needs."""


class StorageFull(ResourceError):
    """The database takes no more."""


class StorageBusy(ResourceError):
    """The database does not respond."""


class SchemaError(HeadraceError):
    """The database has a schema that this version of Headrace does not know."""


class EventError(HeadraceError):
    """A raw event cannot become an event."""


class MalformedEvent(EventError):
    """The raw event is not valid JSON."""


class MissingField(EventError):
    """The raw event lacks a field that the watch declares."""


class WrongField(MissingField):
    """A field of the raw event is not what the watch declares."""


class EventArrivedEarly(EventError):
    """The event came before the one that it follows was handled; it waits."""


class EventAlreadySeen(EventError):
    """The event was handled already, or is being handled now."""


class StreamError(HeadraceError):
    """A shared stream failed."""


class StreamEnded(StreamError):
    """A shared stream is expected to run for the lifetime of its subscribers, but it ended."""


class StreamMoved(StreamError):
    """A shared stream ended because its producer begins again in another process; this is no failure of its own."""


class SubscriberOverflow(StreamError):
    """The subscriber's queue is full."""


class AckTimeout(StreamError):
    """The subscriber did not answer within the ack timeout."""


class ApiError(HeadraceError):
    """The api answered with a problem."""

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, status: int | None = None, problem: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.problem = problem


class ApiUnavailable(ApiError):
    """The api cannot be reached now."""

    retry_after: float | None = None
    """Seconds after which the api asked to be tried again, where it said so."""


class ApiRefused(ApiError):
    """The api refused the request."""


class Fenced(ApiRefused):
    """This job no longer holds what it tried to change."""


class PipelineError(HeadraceError):
    """A pipeline failed."""


class TypeConflict(PipelineError):
    """A value does not have the type of its column. Another attempt has the same result."""


class RunTooLarge(PipelineError):
    """The events of a run do not fit in memory."""


class RunConflict(PipelineError):
    """A table has other events for a run than the run itself."""


class IllegalStep(HeadraceError):
    """A task run cannot do this from the state that it is in."""


class TaskCancelled(HeadraceError):
    """The task run was cancelled."""


class ProcessFailed(HeadraceError):
    """A process keeps failing."""
