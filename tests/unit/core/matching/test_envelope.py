from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.matching.envelope import Envelope, EventFields
from headrace.core.matching.paths import JsonPath
from headrace.errors import MissingField


def extract(value: Any, **paths: str) -> EventFields:
    parsed: dict[str, Any] = {name: JsonPath.parse(path) for name, path in paths.items()}
    return Envelope(**({"source": "s", "type": "t"} | parsed)).extract(value, stream="dir:feed", lane="a.jsonl", position=120)


def test_what_is_not_declared_has_its_default() -> None:
    assert extract({}) == EventFields("dir:feed/a.jsonl/120", "s", "t", None, None, None)


def test_all_that_is_declared() -> None:
    value = {"id": 7, "prev": 6.0, "tail": "N1", "at": "2026-11-20T13:00:00+01:00", "kind": "leg", "from": 1.5}
    fields = extract(value, id="$.id", follows="$.prev", subject="$.tail", occurred="$.at", type="$.kind", source="$.from")
    assert fields == EventFields("7", "1.5", "leg", "N1", datetime(2026, 11, 20, 12, tzinfo=UTC), "6")


@pytest.mark.parametrize("field", ["id", "subject", "occurred", "type", "source"])
@pytest.mark.parametrize("value", [{}, {"f": None}, {"f": []}, {"f": {}}, {"f": True}])
def test_what_is_declared_must_be_there_and_of_its_kind(field: str, value: Any) -> None:
    with pytest.raises(MissingField, match=r"\$\.f"):
        extract(value, **{field: "$.f"})


@pytest.mark.parametrize("value", [{}, {"f": None}, {"f": ""}])
def test_a_first_event_follows_nothing(value: Any) -> None:
    assert extract(value, follows="$.f").follows is None


@pytest.mark.parametrize("value", [{"f": []}, {"f": {}}, {"f": False}, {"f": "x" * 1001}])
def test_follows_of_a_wrong_kind(value: Any) -> None:
    with pytest.raises(MissingField, match=r"\$\.f"):
        extract(value, follows="$.f")


@pytest.mark.parametrize(("field", "text"), [("id", ""), ("id", "x" * 1001), ("type", "x" * 201), ("type", ""), ("source", "")])
def test_texts_have_a_length(field: str, text: str) -> None:
    with pytest.raises(MissingField, match="characters"):
        extract({"f": text}, **{field: "$.f"})


def test_an_empty_subject_is_a_subject() -> None:
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
def test_moments(found: Any, moment: datetime) -> None:
    assert extract({"f": found}, occurred="$.f").occurred == moment


@pytest.mark.parametrize("found", ["", "soon", "2026-11-20T12:00:00", "2026-11-20", 1e300, 10**30, "9999-12-31T23:59:59-12:00"])
def test_what_is_no_moment(found: Any) -> None:
    with pytest.raises(MissingField, match="RFC 3339"):
        extract({"f": found}, occurred="$.f")


def test_an_id_made_of_the_place_needs_a_position_and_has_a_length() -> None:
    envelope = Envelope("s", "t")
    with pytest.raises(MissingField, match="no position") as caught:
        envelope.extract({}, stream="s", lane="l", position=None)
    assert caught.value.hint
    with pytest.raises(MissingField, match="longer"):
        envelope.extract({}, stream="s", lane="l" * 1000, position=1)


def test_equal_envelopes_are_one() -> None:
    def envelope() -> Envelope:
        return Envelope("s", JsonPath.parse("$.t"), id=JsonPath.parse("$.a"))

    assert len({envelope(), envelope(), Envelope("s", "t")}) == 2


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))
)
def test_any_value_seals_or_says_what_is_missing(found: Any) -> None:
    for field in ("id", "follows", "subject", "occurred", "type", "source"):
        try:
            fields = extract({"f": found}, **{field: "$.f"})
        except MissingField:
            continue
        assert isinstance(getattr(fields, field), str | datetime | None)
