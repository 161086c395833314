"""The models of an event have the columns of the event schema."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import get_type_hints

from headrace.wire.custody.events import EventItem
from headrace.wire.event_schema import EVENT_COLUMNS, SCOPE_COLUMNS, OptionalEventFields
from headrace.wire.status.status import EventDetail

SENT = {column.name: column for column in EVENT_COLUMNS if column.sent}


def test_a_triggerer_sends_all_sent_columns() -> None:
    # The log replaces a missing `occurred`, and `firings` go to another table.
    assert {one.name for one in fields(EventItem)} - {"occurred", "firings"} == SENT.keys()


def test_the_optional_fields_are_the_nullable_sent_columns_with_their_types() -> None:
    expected = {name: str | None if column.type == "text" else int | None for name, column in SENT.items() if column.nullable}
    assert {name: field.annotation for name, field in OptionalEventFields.model_fields.items()} == expected
    assert expected.items() <= get_type_hints(EventItem).items()


def test_the_detail_of_an_event_has_all_stored_columns_except_digests() -> None:
    stored = {column.name for column in EVENT_COLUMNS if column.stored and column.type != "digest"}
    assert stored <= EventDetail.model_fields.keys()


def test_cloudevents_attributes_have_valid_and_unique_names() -> None:
    names = [column.cloudevents for column in (*EVENT_COLUMNS, *SCOPE_COLUMNS) if column.cloudevents is not None]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in names)
