"""Pages of API calls, from the table of calls and the OpenAPI document of its routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from headrace.wire.calls.call import Call
from headrace.wire.problem import PROBLEM_JSON

CALLERS = {
    "deployment key": "the deployment key",
    "any job": "the token of any job",
    "triggerer": "the token of a triggerer's job",
    "pipeline": "the token of a pipeline's job",
    "worker": "the token of a worker's job",
    "admin": "the deployment key, or a token of scope `admin`",
    "reader": "nothing if the API server listens on loopback only, otherwise a token of scope `read` or `admin`",
    "anyone": "nothing",
}


def page(title: str, introduction: Sequence[str], calls: Sequence[Call[Any, Any]], document: dict[str, Any]) -> str:
    """Return the page of an API."""
    lines = [
        f"# {title}",
        "",
        *introduction,
        "",
        f"An error is `{PROBLEM_JSON}` with one of the [problem types](errors.md#problem-types-of-the-api).",
        "",
        "## Callers",
        "",
        "| caller | credential |",
        "|---|---|",
        *(f"| {caller} | {CALLERS[caller]} |" for caller in dict.fromkeys(call.caller for call in calls)),
        "",
        "## Repetition",
        "",
        "A call that only reads can always be repeated. The other calls:",
        "",
        "| call | repeatable | effect of a repetition |",
        "|---|---|---|",
        *(f"| `{call.name}` | {'yes' if call.repeatable else 'no'} | {call.repetition} |" for call in calls if call.changes),
        "",
    ]
    for resource, group in groupby(calls, key=_resource):
        lines += [f"## {resource.capitalize()}", ""]
        for call in group:
            lines += [*_call(call, document), ""]
    lines += ["## Models", "", "A field with a default can be omitted.", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if schema.get("properties"):
            lines += [f"### {name}", "", *_prose(schema), "| field | type | default |", "|---|---|---|", *_fields(schema), ""]
    return "\n".join(lines)


def _resource(call: Call[Any, Any]) -> str:
    parts = call.template.removeprefix("/api/v1").removeprefix("/execution").split("/")
    return parts[1].replace("-", " ")


def _call(call: Call[Any, Any], document: dict[str, Any]) -> Iterator[str]:
    operation = document["paths"][call.template][call.method.lower()]
    yield f"### `{call.name}`"
    yield ""
    yield from _prose(operation)
    yield f"- Caller: {call.caller}"
    if body := operation.get("requestBody"):
        yield f"- Request: {_content(body['content'])}"
    status, response = next((status, each) for status, each in operation["responses"].items() if status.startswith("2"))
    content = response.get("content")
    yield f"- Response: {status}{', ' + _content(content) if content else ''}"
    parameters = [each for each in operation.get("parameters", []) if each["in"] != "header"]
    if parameters:
        yield ""
        yield "| parameter | in | type | default |"
        yield "|---|---|---|---|"
        for each in parameters:
            default = "required" if each.get("required") else _default(each["schema"])
            yield f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {default} |"


def _prose(schema: dict[str, Any]) -> list[str]:
    """Return the description of a model, one line for each paragraph."""
    paragraphs = schema.get("description", "").split("\n\n")
    return [line for each in paragraphs if each for line in (" ".join(each.split()), "")]


def _content(content: dict[str, Any]) -> str:
    return " or ".join(
        _type(each["schema"]) if kind == "application/json" and "$ref" in each.get("schema", {}) else f"`{kind}`"
        for kind, each in content.items()
    )


def _fields(schema: dict[str, Any]) -> Iterable[str]:
    required = schema.get("required", [])
    for name, each in schema["properties"].items():
        yield f"| `{name}` | {_type(each)} | {'required' if name in required else _default(each)} |"


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "any JSON")
    if kind == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(_type(each) for each in schema["prefixItems"]) + "]"
        return f"list of {_type(schema.get('items', {}))}{_limits(schema)}"
    if kind == "object" and "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if schema.get("format"):
        kind = f"{kind} ({schema['format']})"
    return f"{kind}{_limits(schema)}"


def _limits(schema: dict[str, Any]) -> str:
    names = {
        "minimum": "at least",
        "exclusiveMinimum": "more than",
        "maximum": "at most",
        "exclusiveMaximum": "less than",
        "minLength": "at least",
        "maxLength": "at most",
        "minItems": "at least",
        "maxItems": "at most",
    }
    units = {"Length": " characters", "Items": " entries"}
    limits = []
    for key, words in names.items():
        if (value := schema.get(key)) is not None:
            unit = next((text for end, text in units.items() if key.endswith(end)), "")
            limits.append(f"{words} {value:,}{unit}")
    return f", {', '.join(limits)}" if limits else ""
