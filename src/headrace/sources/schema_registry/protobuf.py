"""Values of Protobuf as JSON, by the JSON mapping of Protobuf with the names of the fields as they are declared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from headrace.core.values.text import describe_error
from headrace.errors import MalformedEvent
from headrace.sources.schema_registry.schema import Schema, ValueDecoder

_MAIN: Final = "headrace_value.proto"
MAX_INDEXES: Final = 100
"""The depth of a message type within others, in the header of a value."""
MAX_VARINT_BYTES: Final = 5


def protobuf_decoder(schema: Schema) -> ValueDecoder:
    """Return the decoder of a Protobuf schema. Raises `ValueError` with the reason if the schema cannot be used."""
    from google.protobuf import json_format, message_factory

    pool, file = _compiled(schema)
    classes: dict[tuple[int, ...], Any] = {}

    def message_class(indexes: tuple[int, ...]) -> Any:
        if indexes not in classes:
            kinds, kind = list(file.message_types_by_name.values()), None
            for index in indexes:
                if not 0 <= index < len(kinds):
                    raise MalformedEvent(f"Not a value of schema {schema.id}: it has no message type {list(indexes)}.")
                kind = kinds[index]
                kinds = list(kind.nested_types)
            classes[indexes] = message_factory.GetMessageClass(kind)
        return classes[indexes]

    def decode(data: bytes) -> bytes:
        indexes, start = _read_indexes(data)
        message = message_class(indexes)()
        try:
            message.ParseFromString(data[start:])
            text: str = json_format.MessageToJson(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, indent=None, descriptor_pool=pool
            )
            return text.encode()
        except Exception as error:  # the library raises errors of many types
            raise MalformedEvent(f"Not a value of schema {schema.id}: {describe_error(error)}") from error

    return decode


def _compiled(schema: Schema) -> tuple[Any, Any]:
    """Return a pool with all files of the schema, and the descriptor of its own file."""
    import grpc_tools
    from google.protobuf import descriptor_pb2, descriptor_pool
    from grpc_tools import protoc

    common = Path(os.fspath(grpc_tools.__path__[0])) / "_proto"
    with TemporaryDirectory(prefix="headrace-schema-") as folder:
        for name, text in [*schema.references, (_MAIN, schema.text)]:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name:
                raise ValueError(f"Invalid name of a file: {name!r}.")
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        output = Path(folder, "headrace_value.descriptors")
        if protoc.main(["protoc", f"-I{folder}", f"-I{common}", "--include_imports", f"--descriptor_set_out={output}", _MAIN]) != 0:
            raise ValueError("protoc refuses the schema.")
        files = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for one in files:
        pool.Add(one)
    return pool, pool.FindFileByName(_MAIN)


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path of the message type at the begin of a value, and its length. A single 0 means the first type."""
    count, position = _read_varint(data, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= MAX_INDEXES:
        raise MalformedEvent(f"Not a value of Protobuf: its message type has {count} indexes.")
    indexes: Sequence[int] = ()
    for _ in range(count):
        index, position = _read_varint(data, position)
        indexes = (*indexes, index)
    return tuple(indexes), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and the position after it."""
    number = 0
    for shift, byte in enumerate(data[position : position + MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position + shift + 1
    raise MalformedEvent("Not a value of Protobuf: the indexes of its message type are cut off.")
