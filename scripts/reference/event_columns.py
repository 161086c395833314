"""The page of the columns of an event, from `headrace.wire.event_schema`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.pipeline.schemas import EVENTS, PIPELINE_COLUMNS
from headrace.wire.event_schema import EVENT_COLUMNS, SCOPE_COLUMNS, EventColumn

PAGE = "event-columns.md"

_TYPES = {"text": "text", "integer": "integer", "time": "time (UTC, microseconds)", "digest": "bytes", "texts": "list of texts"}


def render() -> str:
    """Return the page."""
    columns = {column.name: column for column in (*SCOPE_COLUMNS, *EVENT_COLUMNS) if column.in_pipeline}
    others = [column for column in EVENT_COLUMNS if not column.in_pipeline]
    lines = [
        "# Event columns",
        "",
        "## DataFrame of a pipeline",
        "",
        "A pipeline's DataFrame has one row for each event.",
        "",
        "| column | Spark type | null | meaning |",
        "|---|---|---|---|",
        *(_pipeline_row(columns[name]) for name in PIPELINE_COLUMNS),
        "",
        "`payload` is JSON text in the log. In a DataFrame it is a struct with the schema that `payload=` declares or that Headrace",
        "learns, or text if that schema has no fields.",
        "",
        "## Other columns of the log",
        "",
        "Pipelines do not have these columns. The ordering reads some of them through the execution API. The admin API returns the others,",
        "and the status page shows them.",
        "",
        "| column | type | null | returned by | meaning |",
        "|---|---|---|---|---|",
        *(_log_row(column) for column in others),
        "",
        "## CloudEvents",
        "",
        "Webhooks and resumed task runs get an event as CloudEvents 1.0 in structured JSON. `specversion` is `1.0` and `datacontenttype`",
        "is `application/json`. Numbers are texts. A null column has no attribute.",
        "",
        "| attribute | column | meaning |",
        "|---|---|---|",
        *_attribute_rows((*EVENT_COLUMNS, *SCOPE_COLUMNS)),
    ]
    return "\n".join(lines)


def _pipeline_row(column: EventColumn) -> str:
    type_ = "struct" if column.name == "payload" else EVENTS[column.name].dataType.simpleString()
    return f"| `{column.name}` | `{type_}` | {_yes(column.nullable)} | {column.meaning} |"


def _log_row(column: EventColumn) -> str:
    api = "execution API" if column.in_log else "admin API"
    return f"| `{column.name}` | {_TYPES[column.type]} | {_yes(column.nullable)} | {api} | {column.meaning} |"


def _attribute_rows(columns: Iterable[EventColumn]) -> Iterator[str]:
    for column in columns:
        if column.cloudevents is not None:
            yield f"| `{column.cloudevents}` | `{column.name}` | {column.meaning} |"


def _yes(nullable: bool) -> str:
    return "yes" if nullable else "no"
