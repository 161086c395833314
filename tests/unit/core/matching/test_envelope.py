from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.envelope import Envelope, EventFields
from headrace.core.matching.paths import JsonPath
from headrace.errors import MissingField, WrongField


def extract(value: Any, **paths: str) -> EventFields:
    parsed: dict[str, Any] = {name: JsonPath.parse(path) for name, path in paths.items()}
    return Envelope(**({"source": "s", "type": "t"} | parsed)).extract(value, stream="dir:feed", lane="a.jsonl", position=120)


def test_undeclared_fields_have_their_defaults() -> None:
    assert extract({}) == EventFields("dir:feed/a.jsonl/120", "s", "t", None, None, None)


def test_all_declared_fields_are_extracted() -> None:
    value = {"id": 7, "prev": 6.0, "tail": "N1", "at": "2026-11-20T13:00:00+01:00", "kind": "leg", "from": 1.5}
    fields = extract(value, id="$.id", follows="$.prev", subject="$.tail", occurred="$.at", type="$.kind", source="$.from")
    assert fields == EventFields("7", "1.5", "leg", "N1", datetime(2026, 11, 20, 12, tzinfo=UTC), "6")


@pytest.mark.parametrize("field", ["id", "subject", "occurred", "type", "source"])
@pytest.mark.parametrize("value", [{}, {"f": None}, {"f": []}, {"f": {}}, {"f": True}])
def test_a_declared_field_that_is_missing_or_of_a_wrong_type_is_an_error(field: str, value: Any) -> None:
    with pytest.raises(MissingField, match=r"\$\.f"):
        extract(value, **{field: "$.f"})


@pytest.mark.parametrize("value", [{}, {"f": None}, {"f": ""}])
def test_a_missing_null_or_empty_follows_means_no_leader(value: Any) -> None:
    assert extract(value, follows="$.f").follows is None


@pytest.mark.parametrize("value", [{"f": []}, {"f": {}}, {"f": False}, {"f": "x" * 1001}])
def test_follows_of_a_wrong_type_is_an_error(value: Any) -> None:
    with pytest.raises(MissingField, match=r"\$\.f"):
        extract(value, follows="$.f")


@pytest.mark.parametrize(("field", "text"), [("id", ""), ("id", "x" * 1001), ("type", "x" * 201), ("type", ""), ("source", "")])
def test_fields_that_are_empty_or_too_long_are_errors(field: str, text: str) -> None:
    with pytest.raises(MissingField, match="characters"):
        extract({"f": text}, **{field: "$.f"})


def test_an_empty_subject_is_valid() -> None:
    assert extract({"f": ""}, subject="$.f").subject == ""


@pytest.mark.parametrize(
    ("found", "moment"),
    [
        ("2026-11-20T12:00:00Z", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("2026-11-20 12:00:00.25-02:00", datetime(2026, 11, 20, 14, 0, 0, 250000, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1.5, datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_times_are_converted_to_utc(found: Any, moment: datetime) -> None:
    assert extract({"f": found}, occurred="$.f").occurred == moment


@pytest.mark.parametrize("found", ["", "soon", "2026-11-20T12:00:00", "2026-11-20", 1e300, 10**30, "9999-12-31T23:59:59-12:00"])
def test_an_invalid_time_is_an_error(found: Any) -> None:
    with pytest.raises(MissingField, match="RFC 3339"):
        extract({"f": found}, occurred="$.f")


def test_an_id_from_the_position_needs_a_position_and_has_a_maximum_length() -> None:
    envelope = Envelope("s", "t")
    with pytest.raises(MissingField, match="neither a position nor an id") as caught:
        envelope.extract({}, stream="s", lane="l", position=None)
    assert caught.value.hint
    with pytest.raises(MissingField, match="longer"):
        envelope.extract({}, stream="s", lane="l" * 1000, position=1)


@pytest.mark.parametrize("position", [None, 7])
def test_an_undeclared_id_derives_from_the_id_of_the_message(position: int | None) -> None:
    envelope = Envelope("s", "t")
    assert envelope.extract({}, stream="s", lane="l", position=position, message_id="a/b").id == "s/a%2Fb"
    for odd in ("x" * 1000, "a\0b", "\ud800"):
        with pytest.raises(WrongField):
            envelope.extract({}, stream="s", lane="l", position=position, message_id=odd)


def test_equal_envelopes_have_equal_hashes() -> None:
    def envelope() -> Envelope:
        return Envelope("s", JsonPath.parse("$.t"), id=JsonPath.parse("$.a"))

    assert len({envelope(), envelope(), Envelope("s", "t")}) == 2


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_any_value_is_extracted_or_raises_missing_field(found: Any) -> None:
    for field in ("id", "follows", "subject", "occurred", "type", "source"):
        try:
            fields = extract({"f": found}, **{field: "$.f"})
        except MissingField:
            continue
        assert isinstance(getattr(fields, field), str | datetime | None)
