"""Values of Avro as JSON.

Records and maps become objects, unions their value, enums their symbol. Bytes and fixed become base64. Of the logical types, decimals
become text, dates and times ISO 8601, UUIDs text.

A value comes from anyone who may write to the topic. The fast reader of fastavro recurses in C without a limit, and a value of some
kilobytes of a recursive schema overflows its stack. Such schemas use its reader in Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

import msgspec

from headrace.core.values.limits import has_non_finite
from headrace.core.values.text import describe_error
from headrace.errors import MalformedEvent
from headrace.sources.schema_registry.schema import Schema, ValueDecoder

_encode: Final = msgspec.json.Encoder(decimal_format="string").encode


def avro_decoder(schema: Schema) -> ValueDecoder:
    """Return the decoder of an Avro schema. Raises `ValueError` with the reason if the schema cannot be used."""
    from fastavro import parse_schema, schemaless_reader
    from fastavro._read_py import schemaless_reader as slow_reader

    named: dict[str, Any] = {}
    try:
        for reference in schema.references:
            parse_schema(json.loads(reference.text), named_schemas=named)
        # A record is encoded as its fields. As the field of one, a schema may also be a union or the name of another schema.
        field = {"name": "value", "type": json.loads(schema.text)}
        parsed = parse_schema({"type": "record", "name": "HeadraceValue", "fields": [field]}, named_schemas=named)
        traits = _Traits(named)
        is_recursive = traits.is_recursive(parsed)
        unbounded = traits.has_unbounded_array(parsed)
    except Exception as error:  # the library raises errors of many types
        raise ValueError(f"Not an Avro schema: {describe_error(error)}") from error
    if unbounded:
        raise ValueError("It has an array of items without content, whose length no value limits.")
    read: Any = slow_reader if is_recursive else schemaless_reader

    def decode(data: bytes) -> bytes:
        source = BytesIO(data)
        try:
            value = read(source, parsed)["value"]
            text = _encode(value)
        except Exception as error:  # as above
            raise MalformedEvent(f"Not a value of schema {schema.id}: {describe_error(error)}") from error
        if source.tell() != len(data):
            raise MalformedEvent(f"Not a value of schema {schema.id}: {len(data) - source.tell()} bytes follow it.")
        if has_non_finite(value, text):
            raise MalformedEvent("JSON has no NaN and no infinity.")
        return text

    return decode


class _Traits:
    """Properties of parsed schemas that decide how their values are read."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def is_recursive(self, schema: Any) -> bool:
        """Return whether a value can contain a value of the same named type."""
        is_finished: dict[str, bool] = {}

        def visit(schema: Any) -> bool:
            schema, name = self._resolved(schema)
            if name:
                if name in is_finished:
                    return not is_finished[name]
                is_finished[name] = False
            recursive = any(map(visit, _parts(schema)))
            if name:
                is_finished[name] = True
            return recursive

        return visit(schema)

    def has_unbounded_array(self, schema: Any) -> bool:
        """Return whether a few bytes can encode an array of any length."""
        visited: set[str] = set()

        def visit(schema: Any) -> bool:
            schema, name = self._resolved(schema)
            if name:
                if name in visited:
                    return False
                visited.add(name)
            if isinstance(schema, dict) and schema["type"] == "array" and self._may_be_empty(schema["items"], {}):
                return True
            return any(map(visit, _parts(schema)))

        return visit(schema)

    def _may_be_empty(self, schema: Any, known: dict[str, bool]) -> bool:
        """Return whether a value of the schema takes no byte. `known` has the results of named types, False for one in work."""
        schema, name = self._resolved(schema)
        if name in known:
            return known[name]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind not in ("record", "error"):
            return kind == "null" or (kind == "fixed" and not schema["size"])
        known[name] = False
        known[name] = all(self._may_be_empty(part, known) for part in _parts(schema))
        return known[name]

    def _resolved(self, schema: Any) -> tuple[Any, str]:
        """Return a schema with its definition instead of its name, and the name of a named type, or ""."""
        while True:
            if isinstance(schema, str) and schema in self._named:
                schema = self._named[schema]
            elif isinstance(schema, dict) and (isinstance(schema["type"], dict | list) or schema["type"] in self._named):
                schema = schema["type"]
            else:
                return schema, schema.get("name", "") if isinstance(schema, dict) else ""


def _parts(schema: Any) -> Iterable[Any]:
    """Return the schemas of the values in a value."""
    if isinstance(schema, list):
        return schema
    if not isinstance(schema, dict):
        return ()
    if "fields" in schema:
        return [field["type"] for field in schema["fields"]]
    return [schema[name] for name in ("items", "values") if name in schema]
