from __future__ import annotations

import pytest

from headrace.core.values.text import (
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    clean_name,
    clean_text,
    describe_error,
    describe_traceback,
    describe_value,
    lane_name,
)
from headrace.triggerer.exception_text import failure


@pytest.mark.parametrize(("text", "clean"), [("plain", "plain"), ("ü\0", "ü\ufffd"), ("a\udcffb", "a\\udcffb"), ("\ud800", "\\ud800")])
def test_a_clean_text_can_be_encoded_and_stored(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    clean.encode()


@pytest.mark.parametrize("raised", [ValueError, RecursionError, SystemExit, KeyboardInterrupt])
def test_a_value_without_a_text_is_described_by_its_type(raised: type[BaseException]) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise raised

        __repr__ = __str__

    assert describe_value(Odd()) == f"<Odd whose text cannot be made: {raised.__name__}>"
    assert describe_error(Odd()) == f"Odd: <Odd whose text cannot be made: {raised.__name__}>"
    assert "Odd" in describe_traceback(Odd())[-1]


def test_an_error_whose_class_name_raises_is_described() -> None:
    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise SystemExit

    class Odd(Exception, metaclass=Meta):
        def __str__(self) -> str:
            raise Odd

    assert describe_error(Odd()) == "Odd: <Odd whose text cannot be made: Odd>"
    assert "Odd" in describe_traceback(Odd())[-1]
    assert failure(Odd()).type == "Odd"


def test_descriptions_are_cut_and_encodable() -> None:
    error = ValueError("x\udcff\0" * MAX_TEXT_CHARS)
    assert len(describe_error(error)) < 3 * MAX_TEXT_CHARS
    for text in (describe_error(error), describe_value(error), *describe_traceback(error)):
        text.encode()
        assert "\0" not in text
    assert describe_error(ValueError()) == "ValueError"
    assert describe_value(7) == "7"


def test_clean_names_stay_distinct() -> None:
    names = [
        "a",
        "a\udcff",
        "a\\udcff",
        "a\0",
        "a\ufffd",
        "x" * MAX_NAME_CHARS,
        "x" * (MAX_NAME_CHARS + 1),
        "x" * (MAX_NAME_CHARS + 2),
        "ü",
    ]
    clean = [clean_name(name) for name in names]
    assert len(set(clean)) == len(names)
    assert all(len(name) <= MAX_NAME_CHARS and "\0" not in name and name.encode() for name in clean)
    assert [clean_name(name) for name in clean] == clean
    assert clean[0] == "a"
    assert [lane_name(lane) for lane in (None, "", "x", 7, ("a", 1))] == ["default", "", "x", "7", "('a', 1)"]
