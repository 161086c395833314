"""A client of a schema registry with Confluent's API: Confluent, Apicurio, Karapace, Redpanda."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, MalformedEvent, StreamError, UpstreamError
from headrace.sources.connections.client_library import missing_library
from headrace.sources.schema_registry.avro import avro_decoder
from headrace.sources.schema_registry.protobuf import protobuf_decoder
from headrace.sources.schema_registry.schema import ReferencedSchema, Schema, ValueDecoder

KINDS: Final = ("http", "https")
REQUEST_SECONDS: Final = 10.0
MAX_SCHEMAS: Final = 1_000
"""Decoders in memory. One that is used again after others is made again."""
MAX_REFERENCES: Final = 1_000
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
UNKNOWN_SECONDS: Final = 10.0
"""How long an answer that a schema is unknown counts: a value is written after its schema, but registries have replicas."""
UNKNOWN_CODES: Final = (40402, 40403)

_DECODERS: Final[Mapping[str, Callable[[Schema], ValueDecoder]]] = {
    "AVRO": avro_decoder,
    "PROTOBUF": protobuf_decoder,
    "JSON": lambda _: bytes,
}

_NO_ANSWER: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of a JSON that is not an answer of a registry."""

T = TypeVar("T")


class _Reference(msgspec.Struct, frozen=True):
    """A schema that another one names. It is a version of a subject."""

    name: str
    subject: str
    version: int


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    """A schema as the registry describes it."""

    schema: str
    schema_type: str | None = None
    references: Sequence[_Reference] | None = None


class _Failure(msgspec.Struct, frozen=True):
    """An error of the registry."""

    error_code: int


class _Known(NamedTuple):
    """The decoder of a schema, or the reason why it has none. It is valid until a time of the monotonic clock."""

    decoder: ValueDecoder | None
    reason: str = ""
    until: float = inf


class SchemaRegistry:
    """Returns the decoders of schemas by their id. Belongs to one thread, which it blocks while it asks the server.

    `unknown_seconds`: how long an answer that a schema is unknown counts, by default 10 s.
    """

    def __init__(self, connection: Connection, *, unknown_seconds: float | None = None) -> None:
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
        self._unknown_seconds = unknown_seconds
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def check(self) -> str:
        """Request the types of schemas, and return a line that describes the registry.

        Raises:
            UpstreamError: The registry refuses the credentials, or there is no registry at this address.
            StreamError: The registry does not answer.
        """
        return f"schema registry with {', '.join(sorted(self._get('/schemas/types', list[str])))}"

    def decoder(self, schema_id: int) -> ValueDecoder:
        """Return the decoder of a schema.

        Raises:
            MalformedEvent: The registry does not have the schema, or it cannot be used.
            UpstreamError: The registry refuses the credentials.
            StreamError: The registry does not answer.
        """
        known = self._known.get(schema_id)
        if known is None or time.monotonic() >= known.until:
            known = self._known[schema_id] = self._load(schema_id)
            while len(self._known) > MAX_SCHEMAS:
                self._known.popitem(last=False)
        self._known.move_to_end(schema_id)
        if known.decoder is None:
            raise MalformedEvent(known.reason)
        return known.decoder

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _load(self, schema_id: int) -> _Known:
        try:
            schema = self._fetch(schema_id)
        except _NotFound:
            until = time.monotonic() + (UNKNOWN_SECONDS if self._unknown_seconds is None else self._unknown_seconds)
            return _Known(None, f"Schema {schema_id} is unknown to the schema registry.", until)
        make = _DECODERS.get(schema.type)
        if make is None:
            return _Known(None, f"Schema {schema_id} is of the unknown type {schema.type!r}.")
        try:
            return _Known(make(schema))
        except ImportError as error:
            raise missing_library(f"Values of {schema.type} cannot be decoded", "schema-registry", error) from error
        except (ValueError, RecursionError) as error:
            return _Known(None, f"Schema {schema_id} cannot be used. {error}")

    def _fetch(self, schema_id: int) -> Schema:
        answer = self._get(f"/schemas/ids/{schema_id}", _Answer)
        return Schema(schema_id, answer.schema_type or "AVRO", answer.schema, tuple(self._references(answer)))

    def _references(self, answer: _Answer) -> list[ReferencedSchema]:
        """Return the schemas that an answer names, directly or not: each after the schemas that it names itself."""
        schemas: list[ReferencedSchema] = []
        names: set[str] = set()
        unfinished = [("", answer)]
        remaining = [iter(answer.references or ())]
        while unfinished:
            reference = next((one for one in remaining[-1] if one.name not in names), None)
            if reference is None:
                remaining.pop()
                name, finished = unfinished.pop()
                schemas.append(ReferencedSchema(name, finished.schema))
                continue
            if len(names) >= MAX_REFERENCES:
                raise self._no_registry(f"a schema has more than {MAX_REFERENCES:,} references")
            names.add(reference.name)
            inner = self._get(f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}", _Answer)
            unfinished.append((reference.name, inner))
            remaining.append(iter(inner.references or ()))
        return schemas[:-1]

    def _get(self, path: str, answer_type: type[T]) -> T:
        """Return the answer to a request. Raises `_NotFound`, and `HeadraceError` if it is of another type."""
        content = bytearray()
        try:
            with self._client.stream("GET", path) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise self._no_registry(f"its answer has more than {MAX_ANSWER_BYTES:,} bytes")
        except httpx.RequestError as error:
            raise StreamError(f"The schema registry '{self._name}' does not answer: {str(error) or type(error).__name__}.") from error
        if response.status_code in (401, 403):
            raise UpstreamError(
                f"The schema registry '{self._name}' refuses the credentials: status {response.status_code}.",
                hint=f"Correct the connection: headrace connections set {self._name}",
            )
        if response.status_code == 404:
            if _is_unknown(content):
                raise _NotFound
            raise self._no_registry("it has no such path")
        if response.status_code != 200:
            raise StreamError(f"The schema registry '{self._name}' answers with status {response.status_code}.")
        try:
            return msgspec.json.decode(content, type=answer_type)
        except _NO_ANSWER as error:
            raise self._no_registry(f"its answer has another form: {error}") from error

    def _no_registry(self, reason: str) -> HeadraceError:
        return UpstreamError(
            f"Connection '{self._name}' is not a schema registry: {reason}.",
            hint="Give the address with its path, such as https://registry.example/apis/ccompat/v7",
        )


def _is_unknown(content: bytearray) -> bool:
    """Return whether the content of an answer says that the registry does not have a schema."""
    try:
        return msgspec.json.decode(content, type=_Failure).error_code in UNKNOWN_CODES
    except _NO_ANSWER:
        return False


class _NotFound(Exception):
    """The registry does not have a schema."""
