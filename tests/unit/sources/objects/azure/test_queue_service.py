"""Events of the messages of a queue."""

from __future__ import annotations

import base64

import pytest

from headrace.sources.objects.azure.queue_service import values_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b'{"a":1}', [b'{"a":1}']), (b'[{"a":1},{"b":2}]', [b'{"a":1}', b'{"b":2}']), (b'[{"a"', [b'[{"a"'])],
)
def test_a_list_becomes_its_elements(data: bytes, expected: list[bytes]) -> None:
    assert values_of(data.decode()) == values_of(base64.b64encode(data).decode()) == expected


def test_nested_json_is_returned_unchanged() -> None:
    text = '[{"x":' + "[" * 200_000 + "]" * 200_000 + "}]"
    assert values_of(text) == [text.encode()]
