"""Every exception that Headrace raises on purpose.

The first paragraph of a docstring is the default message, the second says what to do. An instance may say it more exactly in
`hint`, so that the command line can show one clear message instead of a traceback.

    HeadraceError
    ├── UsageError            the user requested something that is not possible
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
    │   │   └── UpstreamFenced another reader has taken over the upstream
    │   ├── SubscriberOverflow a subscriber's queue was full and the policy is to fail it
    │   └── AckTimeout        a subscriber did not answer in time
    ├── ApiError              the api answered with a problem
    │   ├── ApiUnavailable    transient: try again (connection, timeout, 5xx, 429)
    │   └── ApiRefused        permanent: the request itself is wrong (4xx)
    │       └── Fenced        a newer owner holds the lease, or the job has ended
    ├── PipelineError         a pipeline or its output failed
    │   ├── TypeConflict      a value does not have the type of its column or field
    │   ├── RunTooLarge       the events of a run do not fit in memory
    │   ├── RunConflict       a table has other events for a run than the run itself
    │   ├── TablesRefused     the service of the tables permanently refuses a request
    │   └── TablesUnavailable the service of the tables does not answer now
    ├── IllegalStep           a task run cannot do this from the state that it is in
    ├── TaskCancelled         the task run was cancelled while a worker ran it
    └── ProcessFailed         a supervised process keeps failing
"""

from __future__ import annotations

from inspect import cleandoc


class HeadraceError(Exception):
    """Something went wrong in Headrace.

    Follow `hint`. `headrace` prints it below the message.
    """

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message or cleandoc(type(self).__doc__ or "").split("\n\n")[0])
        self.hint = hint


class UsageError(HeadraceError):
    """The user requested something that is not possible.

    Correct the command, the project or the setting that the message names.
    """


class ProjectError(UsageError):
    """The project file cannot be used.

    Correct the project file at the line in the message. `headrace standalone` names the same line.
    """


class SettingsError(UsageError):
    """A setting cannot be used.

    Correct the setting in `headrace.toml`, in the environment or on the command line.
    """


class UpstreamError(UsageError):
    """The upstream cannot be opened as it is described.

    Correct the arguments of the upstream, or create the folder or file that it names.
    """


class SecretError(UsageError):
    """The connection or variable cannot be used.

    List what exists with `headrace connections list` and `headrace variables list`, then set it.
    """


class JavaError(UsageError):
    """PySpark needs Java 17 or newer, and none was found.

    Install Java 17 or newer, or `pip install 'headrace[java]'`, or set `JAVA_HOME`.
    """


class ResourceError(HeadraceError):
    """The machine refused what Headrace needs.

    Repair what the message names: a port in use, a folder without permission, a full disk. Then start again.
    """


class StorageFull(ResourceError):
    """The database takes no more.

    Free disk space for the database. Processes retry until then.
    """


class StorageBusy(ResourceError):
    """The database does not respond.

    Nothing, if it is brief: processes retry. Otherwise check the database server, or a second API server on one SQLite file.
    """


class SchemaError(HeadraceError):
    """The database has a schema that this version of Headrace does not know.

    Use the version of Headrace that created the schema, or upgrade the schema: `headrace db upgrade`.
    """


class EventError(HeadraceError):
    """A raw event cannot become an event.

    See its subclasses.
    """


class MalformedEvent(EventError):
    """The raw event is not valid JSON.

    Nothing: the raw event becomes a dead letter. Correct the sender, then redrive.
    """


class MissingField(EventError):
    """The raw event lacks a field that the watch declares.

    Correct the paths of the watch or the sender, then redrive the dead letter.
    """


class WrongField(MissingField):
    """A field of the raw event is not what the watch declares.

    As for `MissingField`.
    """


class EventArrivedEarly(EventError):
    """The event came before the one that it follows was handled; it waits.

    Nothing: the ordering passes the event on after its leader.
    """


class EventAlreadySeen(EventError):
    """The event was handled already, or is being handled now.

    Skip the event.
    """


class StreamError(HeadraceError):
    """A shared stream failed.

    Read the stream's error in `headrace status`. The stream is retried.
    """


class StreamEnded(StreamError):
    """A shared stream is expected to run for the lifetime of its subscribers, but it ended.

    Return from `messages()` of the producer only when it is cancelled.
    """


class UpstreamFenced(StreamEnded):
    """Another reader has taken over the upstream.

    Stop the other reader, if it is not a triggerer of this deployment. The stream opens again.
    """


class StreamMoved(StreamError):
    """A shared stream ended because its producer starts again in another process. The stream itself did not fail.

    Nothing: the stream opens again.
    """


class CopyRejected(StreamError):
    """The broker permanently rejects the copy of a dead letter.

    Read the reason with `headrace dead-letters show ID`. The dead letter itself is stored, and can be redriven.
    """


class SubscriberOverflow(StreamError):
    """The subscriber's queue is full.

    Make the filter faster, or let it spill to its backlog, which is the default.
    """


class AckTimeout(StreamError):
    """The subscriber did not answer within the ack timeout.

    Make the filter faster, or give the trigger a longer ack timeout.
    """


class ApiError(HeadraceError):
    """The api answered with a problem.

    Follow `hint`. `problem` names a problem type of the table below.
    """

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, status: int | None = None, problem: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.problem = problem


class ApiUnavailable(ApiError):
    """The api cannot be reached now.

    Retry after `retry_after` seconds. Processes of Headrace do so by themselves.
    """

    retry_after: float | None = None
    """The seconds of the response's Retry-After, or None if it has none."""


class ApiRefused(ApiError):
    """The api refused the request.

    Correct the request. Another attempt fails alike.
    """


class Fenced(ApiRefused):
    """This job no longer holds what it tried to change.

    Stop the work: another job has the lease. The process registers again by itself.
    """


class PipelineError(HeadraceError):
    """A pipeline failed.

    Read the log of the run: `headrace logs run ID`.
    """


class TypeConflict(PipelineError):
    """A value does not have the type of its column. Another attempt has the same result.

    Correct the pipeline or the declared schema, then redrive the events.
    """


class RunTooLarge(PipelineError):
    """The events of a run do not fit in memory.

    Declare a smaller `Window` or `Debounce`.
    """


class RunConflict(PipelineError):
    """A table has other events for a run than the run itself.

    Do not delete files of the table. Follow `hint`: it names what was restored, and how to continue.
    """


class TablesRefused(PipelineError):
    """The service that has the tables refuses a request.

    Correct the connection, the bucket or its permissions. Runs stay open, and continue when the pipeline is started again.
    """


class TablesUnavailable(PipelineError):
    """The service that has the tables does not answer.

    Wait, or repair the service. Runs stay open meanwhile.
    """


class IllegalStep(HeadraceError):
    """A task run cannot do this from the state that it is in.

    Look at the state of the task run: `headrace task-runs show ID`.
    """


class TaskCancelled(HeadraceError):
    """The task run was cancelled.

    Release resources and let the exception pass.
    """


class ProcessFailed(HeadraceError):
    """A process keeps failing.

    Read the log of the process that the message names.
    """
