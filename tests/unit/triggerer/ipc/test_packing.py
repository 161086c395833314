"""Raw events of a user's producer cross to the runner without loss."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.triggerer.ipc.packing import Text, pack, unpack
from headrace.triggerer.user_process import remote_stream
from headrace.triggers.raw_event import Message


class Order(Message):
    """A user's subclass."""


@pytest.mark.parametrize("kind", [Message, Order])
@pytest.mark.parametrize("position", [None, 7])
def test_a_message_of_a_user_keeps_its_metadata_in_the_runner_and_its_class_in_the_filter(
    kind: type[Message], position: int | None
) -> None:
    sent = kind(b"{}", "queue", position, "key", 2, (("h", b"\xff"), ("none", None)), 1_000, "m1")
    got = unpack(pack(sent, "queue", position))
    assert isinstance(got, Message)
    assert (got.data, got.lane, got.position, got.metadata) == (b"{}", "queue", position, sent.metadata)
    delivered = remote_stream.unpack(remote_stream.pack(got, "queue@1", 9))
    assert (type(delivered.raw), delivered.raw.metadata, delivered.lane, delivered.position) == (kind, sent.metadata, "queue@1", 9)


@pytest.mark.parametrize("headers", [5, ((1, b""),), (("a", "text"),), (("a", b"", 3),)])
def test_invalid_metadata_of_a_message_are_dropped_and_its_value_is_sent(headers: Any) -> None:
    packed = pack(Message(b"{}", "queue", 1, headers=headers), "queue", 1)
    assert isinstance(packed, Text)
    assert packed.metadata is None
    assert unpack(packed).data == b"{}"
