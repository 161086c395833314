"""Texts about values and errors of users' code, safe to log, to send and to store."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from traceback import format_exception
from typing import Final

MAX_TEXT_CHARS: Final = 10_000
"""The longest text about one value or error, in characters."""
MAX_NAME_CHARS: Final = 500
"""The longest name of a lane or stream, in characters."""


def clean_text(text: str) -> str:
    r"""Return a text that UTF-8 and every store can hold: a lone surrogate becomes `\udcff`, NUL becomes U+FFFD."""
    if not text.isascii():
        text = text.encode(errors="backslashreplace").decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def clean_name(text: str, most: int = MAX_NAME_CHARS) -> str:
    """Return a name that every store can hold, at most `most` characters; two that had to be changed stay two, by a digest."""
    if len(text) <= most and text.isascii() and "\0" not in text:
        return text
    clean = clean_text(text)
    if clean == text and len(text) <= most:
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    return f"{clean[: most - len(digest) - 1]}#{digest}"


def lane_name(lane: object) -> str:
    """Return the name of a producer's lane; the one lane of a producer that has no lanes is `default`."""
    if lane is None:
        return "default"
    return clean_name(lane if isinstance(lane, str) else str(lane))


def describe_value(value: object) -> str:
    """Return the `repr` of a value, cut to `MAX_TEXT_CHARS`; where that raises, the type and why."""
    return _described(value, repr)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error; where its `str` raises, the type and why."""
    message = _described(error, str)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def describe_traceback(error: BaseException) -> list[str]:
    """Return the traceback of an error as entries of lines, as `traceback.format_exception` does."""
    try:
        entries = format_exception(error)
    except BaseException as failure:  # what users' classes do when they are printed must not end ours
        return [f"{type(error).__name__} (its traceback cannot be printed: {type(failure).__name__})\n"]
    return [clean_text(entry)[:MAX_TEXT_CHARS] for entry in entries]


def _described(value: object, describe: Callable[[object], str]) -> str:
    try:
        text = describe(value)[:MAX_TEXT_CHARS]
        return clean_text(text)
    except BaseException as failure:  # as above; also SystemExit
        return f"<{type(value).__name__} whose text cannot be made: {type(failure).__name__}>"
