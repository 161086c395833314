"""Convert exceptions of users' code to text that can be sent."""

from __future__ import annotations

from typing import Final

import msgspec

from headrace.core.values.text import clean_text, describe_text, describe_traceback, hint_of, type_name
from headrace.errors import StreamEnded
from headrace.triggers.masking import mask

MAX_TRACEBACK_LINES: Final = 100
MAX_TYPE_CHARS: Final = 200


class Failure(msgspec.Struct, array_like=True):
    """The class, the message with the hint, and the traceback of an error.

    `is_final`: a producer raised `StreamEnded`, so that a repetition cannot succeed.
    """

    type: str
    message: str
    traceback: list[str]
    is_final: bool = False


def failure(error: BaseException, *, with_traceback: bool = True) -> Failure:
    """Return an exception as text that can be sent and stored.

    Secrets are masked here, because only this process knows which secrets it has fetched.
    """
    kind = clean_text(type_name(error))[:MAX_TYPE_CHARS]
    lines = [line for entry in (describe_traceback(error) if with_traceback else ()) for line in mask(entry).splitlines()]
    return Failure(kind, mask(describe_text(error) + hint_of(error)), lines[-MAX_TRACEBACK_LINES:], isinstance(error, StreamEnded))
