"""No text about users' code shows a part of a secret, for any position of the secret and of the cut."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from headrace.core.values.masking import MASK, MIN_SECRET_CHARS, Masker
from headrace.core.values.text import (
    MAX_LINE_CHARS,
    MAX_TEXT_CHARS,
    cut_lines,
    describe_error,
    describe_text,
    describe_traceback,
    describe_value,
)

SEED = int(os.environ.get("SCENARIO_SEED", "1"))
CUTS = (MAX_LINE_CHARS, MAX_TEXT_CHARS)


@pytest.fixture
def mask(monkeypatch: pytest.MonkeyPatch) -> Masker:
    made = Masker()
    monkeypatch.setattr("headrace.core.values.text.mask", made)
    return made


def traceback_of(text: str) -> str:
    try:
        raise ValueError(text)
    except ValueError as error:
        return "\n".join(cut_lines("".join(describe_traceback(error)).splitlines()))


FORMS: dict[str, Callable[[str], str]] = {
    "text": describe_text,
    "value": describe_value,
    "error": lambda text: describe_error(ValueError(text)),
    "chained": lambda text: describe_error(RuntimeError(f"It failed: {ValueError(text)}")),
    "lines": lambda text: "\n".join(cut_lines(text.splitlines())),
    "traceback": traceback_of,
}


def longest_run_of_secret(text: str, secret: str) -> int:
    """Return how many characters in a row of the secret, which has no character in common with the rest, a text shows."""
    most = row = 0
    for one in text:
        row = row + 1 if one in secret else 0
        most = max(most, row)
    return most


@pytest.mark.parametrize("form", FORMS)
def test_no_part_of_a_secret_is_shown(form: str, mask: Masker) -> None:
    chance = random.Random(f"{SEED} {form}")
    for _ in range(60):
        secret = "".join(chance.choice("ABCDEFGHJK") for _ in range(chance.choice([MIN_SECRET_CHARS, 8, 40, 300, 3000])))
        mask.add([secret])
        length = chance.choice([0, 500, *CUTS, 3 * MAX_TEXT_CHARS])
        filling = "".join(chance.choice("z9 \n" if length < 2000 else "z9") for _ in range(length))
        near = chance.choice([*CUTS, 0, length]) - chance.randint(-50, len(secret) + 50)
        at = max(0, min(length, near))
        before, after = filling[:at], filling[at:]
        found = FORMS[form](f"{before}{secret}{after}{secret}")
        assert longest_run_of_secret(found.replace(MASK, ""), secret) < MIN_SECRET_CHARS, (form, len(secret), at, length)


def test_masks_before_a_cut_do_not_move_a_part_of_a_secret_before_it(mask: Masker) -> None:
    secret = "ABCDEFGHJK" * 10
    mask.add([secret])
    for shift in range(0, len(secret), 7):
        found = describe_text("z" * shift + secret * 2000)
        assert longest_run_of_secret(found, secret) == 0


@pytest.mark.parametrize("at", range(MAX_TEXT_CHARS - 60, MAX_TEXT_CHARS + 10, 3))
def test_the_password_of_a_uri_across_the_cut_is_not_shown(at: int, mask: Masker) -> None:
    del mask
    found = describe_text("z" * at + " postgresql://rider:" + "K" * 40 + "@host/db" + "z" * 500)
    assert "K" not in found


def test_short_text_is_not_cut(mask: Masker) -> None:
    mask.add(["secret"])
    text = "x" * MAX_TEXT_CHARS
    assert describe_text(text) == text
    assert describe_text("http://host:8642") == "http://host:8642"
    assert len(describe_text("x" * 5 * MAX_TEXT_CHARS)) == MAX_TEXT_CHARS
    assert cut_lines(["y" * 2 * MAX_LINE_CHARS])[0].endswith(" […]")
