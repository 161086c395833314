"""The page of the public Python API: every name of `headrace` and `headrace.testing`, by topic; mkdocstrings fills in the docstrings."""

from __future__ import annotations

import headrace
import headrace.testing

PAGE = "python-api.md"

TOPICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Project": (
        "The declaration of triggers, pipelines and tasks. See [Pipelines](../guides/pipelines.md).",
        ("Project", "load_project", "Window", "Debounce"),
    ),
    "Upstreams": (
        "The source of messages. See [Upstreams](../guides/upstreams.md).",
        (
            "Directory",
            "Http",
            "Kafka",
            "Kinesis",
            "Mqtt",
            "Nats",
            "ObjectStore",
            "Postgres",
            "PubSub",
            "Pulsar",
            "RabbitMQ",
            "RabbitMQStreams",
            "ServiceBus",
            "SQS",
            "StorageQueue",
            "RedisStreams",
            "Queue",
            "QueueWriter",
            "Memory",
            "Upstream",
            "make_upstream",
            "SharedStreamProducer",
            "RawEvent",
            "AdvanceItem",
            "AdvanceOutcome",
        ),
    ),
    "Triggers": (
        "Code that decides which messages are events. See [Triggers and producers](../guides/triggers.md).",
        (
            "BaseEventTrigger",
            "BaseTrigger",
            "TriggerEvent",
            "SKIP",
            "Reject",
            "reject_shared_stream_event",
            "WatchTrigger",
            "SharedStreamManager",
        ),
    ),
    "Tasks": (
        "Functions that a worker executes, and what their runs wait for. See [Tasks and task runs](../guides/task-runs.md).",
        (
            "Task",
            "Run",
            "TaskDeferred",
            "TaskSkipped",
            "LogEvent",
            "FileTrigger",
            "HttpStatusTrigger",
            "DateTimeTrigger",
            "TimeDeltaTrigger",
            "RunSucceeded",
            "RunFailed",
            "RunSkipped",
        ),
    ),
    "Connections and variables": (
        "Access data of other systems. See [Connections and variables](../guides/secrets.md).",
        ("Connection", "get_connection", "aget_connection", "get_variable", "aget_variable"),
    ),
    "Causal order": (
        "The ordering as a library. See [Causal order](../guides/causal-order.md#order-events-in-your-own-program).",
        ("CausalOrdering", "CausalEvent", "DeliveryPolicy", "claimed_event", "EventArrivedEarly", "EventAlreadySeen"),
    ),
}


def render() -> str:
    """Return the page. Raises `ValueError` if a public name has no topic."""
    missing = set(headrace.__all__).symmetric_difference(name for _, names in TOPICS.values() for name in names)
    if missing:
        raise ValueError(
            f"TOPICS does not match the public names of headrace: {sorted(missing)}. Add them to scripts/reference/python_api.py."
        )
    lines = ["# Python API", "", "Import these names from `headrace`. Names that are not on this page are internal and may change.", ""]
    for topic, (about, names) in TOPICS.items():
        lines += [f"## {topic}", "", about, "", *(f"::: headrace.{name}\n" for name in names)]
    lines += ["## Testing", "", "Import these names from `headrace.testing`. See [Test a project](../guides/testing.md).", ""]
    lines += [f"::: headrace.testing.{name}\n" for name in headrace.testing.__all__]
    lines += ["## Errors", "", "Every exception is in `headrace.errors`. [Errors](errors.md) lists them, with what to do."]
    return "\n".join(lines)
