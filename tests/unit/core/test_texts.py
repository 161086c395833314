from __future__ import annotations

import pytest

from headrace.core.texts import MAX_TEXT_CHARS, clean_text, describe_error, describe_traceback, describe_value


@pytest.mark.parametrize(("text", "clean"), [("plain", "plain"), ("ü\0", "ü\ufffd"), ("a\udcffb", "a\\udcffb"), ("\ud800", "\\ud800")])
def test_a_clean_text_can_be_encoded_and_stored(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    clean.encode()


@pytest.mark.parametrize("raised", [ValueError, RecursionError, SystemExit, KeyboardInterrupt])
def test_what_cannot_be_printed_is_described_by_its_type(raised: type[BaseException]) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise raised

        __repr__ = __str__

    assert describe_value(Odd()) == f"<Odd whose text cannot be made: {raised.__name__}>"
    assert describe_error(Odd()) == f"Odd: <Odd whose text cannot be made: {raised.__name__}>"
    assert "Odd" in describe_traceback(Odd())[-1]


def test_texts_are_cut_and_clean() -> None:
    error = ValueError("x\udcff\0" * MAX_TEXT_CHARS)
    assert len(describe_error(error)) < 3 * MAX_TEXT_CHARS
    for text in (describe_error(error), describe_value(error), *describe_traceback(error)):
        text.encode()
        assert "\0" not in text
    assert describe_error(ValueError()) == "ValueError"
    assert describe_value(7) == "7"
