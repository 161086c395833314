"""Descriptions of values and errors of users' code, safe to log, send and store. Secrets are masked before a text is cut.

A *storable* text has no NUL (PostgreSQL rejects it) and no lone surrogate (invalid in UTF-8 and JSON).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from traceback import format_exception
from typing import Final

from headrace.core.values.masking import mask
from headrace.errors import HeadraceError

MAX_TEXT_CHARS: Final = 10_000
"""Maximum of a description of one value or error, in characters."""
MAX_NAME_CHARS: Final = 500
"""Maximum of a name of a lane or stream, in characters."""
MAX_LINE_CHARS: Final = 1000
MAX_TRACEBACK_LINES: Final = 100
MAX_ID_CHARS: Final = 1000
MAX_ID_BYTES: Final = 2000
MAX_INDEXED_NAME_BYTES: Final = 1250
"""Maximum of a stream or lane name: both are in one index, and an index entry of PostgreSQL has at most 2,704 bytes."""
CUT_MARK: Final = " […]"

_DIGEST_BYTES: Final = 16
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__
_NOT_STORABLE: Final = re.compile("[\0\ud800-\udfff]")


def clean_text(text: str) -> str:
    r"""Return a text that UTF-8 and every store can hold: a lone surrogate becomes `\udcff`, NUL becomes U+FFFD."""
    if not text.isascii():
        text = text.encode(errors="backslashreplace").decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def clean_name(text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a storable name of at most `max_chars` characters. Changed names get a digest, so that distinct names stay distinct."""
    return storable_id(text, max_chars, MAX_INDEXED_NAME_BYTES) if text else text


def lane_name(lane: object, suffix: str = "") -> str:
    """Return the name of a producer's lane, with `suffix`. None, the single lane of a producer without lanes, is named `default`."""
    name = "default" if lane is None else clean_name(lane if isinstance(lane, str) else str(lane))
    return clean_name(name + suffix) if suffix else name


def is_storable(text: str) -> bool:
    """Return whether `text` is storable unchanged in every database."""
    return "\0" not in text if text.isascii() else _NOT_STORABLE.search(text) is None


def cut_text(text: str, max_chars: int) -> str:
    """Return `text`, clean, and cut to `max_chars` characters; a cut text ends with `CUT_MARK`."""
    cleaned = clean_text(text[: max_chars + 1])
    return cleaned if len(cleaned) <= max_chars else cleaned[: max_chars - len(CUT_MARK)] + CUT_MARK


def cut_lines(lines: Iterable[str], max_lines: int = MAX_TRACEBACK_LINES) -> list[str]:
    """Return the last `max_lines` lines, each clean, without secrets, and at most `MAX_LINE_CHARS` long."""
    return [cut_text(_masked(line, MAX_LINE_CHARS), MAX_LINE_CHARS) for line in list(lines)[-max_lines:]]


def is_id(text: str, max_chars: int = MAX_ID_CHARS, max_bytes: int = MAX_ID_BYTES) -> bool:
    """Return whether `text` can be an id: storable, not empty, and short enough for an index."""
    if not 0 < len(text) <= max_chars or not is_storable(text):
        return False
    return len(text if text.isascii() else text.encode()) <= max_bytes


def storable_id(text: str, max_chars: int = MAX_ID_CHARS, max_bytes: int = MAX_ID_BYTES) -> str:
    """Return `text` if it can be an id, else a readable prefix and a digest: distinct texts have distinct ids."""
    if is_id(text, max_chars, max_bytes):
        return text
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    room = min(max_chars, max_bytes) - 1 - len(digest)
    begin = clean_text(text[:room])[:room].encode()[:room]
    return f"{begin.decode(errors='ignore')}#{digest}"


def id_part(text: str) -> str:
    """Escape a text as a part of an id whose parts are joined by slashes, so that distinct parts give distinct ids."""
    return text.replace("%", "%25").replace("/", "%2F") if "/" in text or "%" in text else text


def type_name(value: object) -> str:
    """Return the name of a value's class, also if its metaclass overrides `__name__`."""
    return _name_of(type(value))


def describe_value(value: object) -> str:
    """Return the `repr` of a value, cut to `MAX_TEXT_CHARS`. If `repr` raises, return the type and the error."""
    return _described(value, repr)


def describe_text(value: object) -> str:
    """Return the `str` of a value, cut to `MAX_TEXT_CHARS`. If `str` raises, return the type and the error."""
    return _described(value, str)


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an error, or the error of its `str`."""
    message = _described(error, str)
    return f"{type_name(error)}: {message}" if message else type_name(error)


def hint_of(error: BaseException | None) -> str:
    """Return a space and the hint of the error, or of the error that caused it, or an empty text."""
    while error is not None:
        if isinstance(error, HeadraceError) and error.hint:
            return f" {clean_text(mask.cut(error.hint, MAX_LINE_CHARS))}"
        error = error.__cause__
    return ""


def describe_traceback(error: BaseException) -> list[str]:
    """Return the entries of `traceback.format_exception` of an error, without secrets and cut."""
    try:
        entries = format_exception(error)
    except BaseException as failure:  # users' classes may raise anything when they are printed
        return [f"{type_name(error)} (its traceback cannot be printed: {type_name(failure)})\n"]
    return [clean_text(mask.cut(entry, MAX_TEXT_CHARS))[:MAX_TEXT_CHARS] for entry in entries]


def traceback_lines(error: BaseException) -> list[str]:
    """Return the last MAX_TRACEBACK_LINES lines of the traceback of an error, as `cut_lines` does."""
    return cut_lines("".join(describe_traceback(error)).splitlines())


def _masked(line: str, max_chars: int) -> str:
    """Return a line without secrets. A long line keeps one character above `max_chars`, so that the caller marks it as cut."""
    return mask.cut(line, max_chars + 1) if len(line) > max_chars else mask(line)


def _described(value: object, describe: Callable[[object], str]) -> str:
    try:
        return clean_text(mask.cut(describe(value), MAX_TEXT_CHARS))
    except BaseException as failure:  # as above; also SystemExit
        return f"<{type_name(value)} whose text cannot be made: {type_name(failure)}>"
