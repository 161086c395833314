"""A client of a schema registry with Confluent's API: Confluent, Apicurio, Karapace, Redpanda."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote

import httpx

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, MalformedEvent, StreamError, UpstreamError
from headrace.sources.client_library import missing_library
from headrace.sources.schema_registry.avro import avro_decoder
from headrace.sources.schema_registry.protobuf import protobuf_decoder
from headrace.sources.schema_registry.schema import ReferencedSchema, Schema, SchemaType, ValueDecoder

KINDS: Final = ("http", "https")
REQUEST_SECONDS: Final = 10.0
MAX_SCHEMAS: Final = 1_000
"""Decoders in memory. One that is used again after others is made again."""
MAX_REFERENCES: Final = 1_000
UNKNOWN_SECONDS: Final = 10.0
"""How long an answer that a schema is unknown counts: a value is written after its schema, but registries have replicas."""
UNKNOWN_CODES: Final = (40402, 40403)

_DECODERS: Final[Mapping[SchemaType, Callable[[Schema], ValueDecoder]]] = {
    "AVRO": avro_decoder,
    "PROTOBUF": protobuf_decoder,
    "JSON": lambda _: bytes,
}


class SchemaRegistry:
    """Returns the decoders of schemas by their id. Belongs to one thread, which it blocks while it asks the server."""

    def __init__(self, connection: Connection) -> None:
        if connection.kind not in KINDS or not connection.host:
            raise UpstreamError(
                f"Connection '{connection.id}' is of kind {connection.kind!r} and cannot be a schema registry.",
                hint="Set it like this: https://user:password@registry.example/path",
            )
        self._name = connection.id
        login = None if connection.login is None else (connection.login, connection.password or "")
        token = connection.extra.get("token")
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        self._client = httpx.Client(
            base_url=connection.address,
            auth=login,
            headers=headers | ({} if token is None else {"Authorization": f"Bearer {token}"}),
            timeout=REQUEST_SECONDS,
        )
        self._decoders: OrderedDict[int, ValueDecoder | MalformedEvent] = OrderedDict()
        self._unknown_since: dict[int, float] = {}

    def check(self) -> str:
        """Request the types of schemas, and return a line that describes the registry.

        Raises:
            UpstreamError: The registry refuses the credentials, or there is no registry at this address.
            StreamError: The registry does not answer.
        """
        types = self._get("/schemas/types")
        if not isinstance(types, list):
            raise self._no_registry("its answer is not a list")
        return f"schema registry with {', '.join(sorted(map(str, types)))}"

    def decoder(self, schema_id: int) -> ValueDecoder:
        """Return the decoder of a schema.

        Raises:
            MalformedEvent: The registry does not have the schema, or it cannot be used.
            UpstreamError: The registry refuses the credentials.
            StreamError: The registry does not answer.
        """
        decoder = self._decoders.get(schema_id)
        if decoder is None or (schema_id in self._unknown_since and time.monotonic() - self._unknown_since[schema_id] > UNKNOWN_SECONDS):
            decoder = self._load(schema_id)
            self._decoders[schema_id] = decoder
            while len(self._decoders) > MAX_SCHEMAS:
                oldest, _ = self._decoders.popitem(last=False)
                self._unknown_since.pop(oldest, None)
        self._decoders.move_to_end(schema_id)
        if isinstance(decoder, MalformedEvent):
            raise MalformedEvent(str(decoder))
        return decoder

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _load(self, schema_id: int) -> ValueDecoder | MalformedEvent:
        self._unknown_since.pop(schema_id, None)
        try:
            schema = self._fetch(schema_id)
        except _NotFound:
            self._unknown_since[schema_id] = time.monotonic()
            return MalformedEvent(f"Schema {schema_id} is unknown to the schema registry.")
        make = _DECODERS.get(schema.type)
        if make is None:
            return MalformedEvent(f"Schema {schema_id} is of the unknown type {schema.type!r}.")
        try:
            return make(schema)
        except ImportError as error:
            raise missing_library(f"Values of {schema.type} cannot be decoded", "schema-registry", error) from error
        except (ValueError, RecursionError) as error:
            return MalformedEvent(f"Schema {schema_id} cannot be used. {error}")

    def _fetch(self, schema_id: int) -> Schema:
        answer = self._object(f"/schemas/ids/{schema_id}")
        references: dict[str, ReferencedSchema] = {}
        self._fetch_references(answer, references, ())
        type = cast("SchemaType", answer.get("schemaType") or "AVRO")
        return Schema(schema_id, type, self._text(answer), tuple(references.values()))

    def _fetch_references(self, answer: Mapping[str, Any], schemas: dict[str, ReferencedSchema], path: tuple[str, ...]) -> None:
        """Add the schemas that an answer names to `schemas`, each after the schemas that it names itself."""
        for reference in answer.get("references") or ():
            name = str(reference["name"])
            if name in schemas or name in path:
                continue
            if len(schemas) + len(path) >= MAX_REFERENCES:
                raise self._no_registry(f"a schema has more than {MAX_REFERENCES:,} references")
            subject = quote(str(reference["subject"]), safe="")
            inner = self._object(f"/subjects/{subject}/versions/{int(reference['version'])}")
            self._fetch_references(inner, schemas, (*path, name))
            schemas[name] = ReferencedSchema(name, self._text(inner))

    def _object(self, path: str) -> dict[str, Any]:
        answer = self._get(path)
        if not isinstance(answer, dict):
            raise self._no_registry("its answer is not an object")
        return answer

    def _text(self, answer: Mapping[str, Any]) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._no_registry("its answer has no schema")
        return text

    def _get(self, path: str) -> Any:
        try:
            response = self._client.get(path)
            body = response.json() if response.content else None
        except httpx.TransportError as error:
            raise StreamError(f"The schema registry '{self._name}' does not answer: {str(error) or type(error).__name__}.") from error
        except ValueError:
            body = None
        if response.status_code in (401, 403):
            raise UpstreamError(
                f"The schema registry '{self._name}' refuses the credentials: status {response.status_code}.",
                hint=f"Correct the connection: headrace connections set {self._name}",
            )
        if response.status_code == 404:
            if isinstance(body, dict) and body.get("error_code") in UNKNOWN_CODES:
                raise _NotFound
            raise self._no_registry("it has no such path")
        if response.status_code != 200:
            raise StreamError(f"The schema registry '{self._name}' answers with status {response.status_code}.")
        return body

    def _no_registry(self, reason: str) -> HeadraceError:
        return UpstreamError(
            f"Connection '{self._name}' is not a schema registry: {reason}.",
            hint="Give the address with its path, such as https://registry.example/apis/ccompat/v7",
        )


class _NotFound(Exception):
    """The registry does not have a schema."""
