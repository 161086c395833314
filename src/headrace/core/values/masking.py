"""Masking of secrets in texts. Pure, with bounded memory and bounded time for each text."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

MASK = "***"
MIN_SECRET_CHARS = 4
"""Shorter secrets are not masked: they occur in many words, so that the masks would reveal them."""

MAX_FORMS = 4_096
"""Limit of forms of secrets in memory; the least recently added one is dropped."""

_IN_URI = re.compile(r"(?<=://)([^\s/:@\"']*):([^\s/@\"']+)@")

_OPEN_URI = re.compile(r"(?<=://)([^\s/:@\"']*):[^\s/@\"']+$")
"""A possible password at the end of a cut text."""


class Masker:
    """Replaces added secrets in all forms: verbatim, in JSON, in Python or in a URI."""

    def __init__(self, max_forms: int = MAX_FORMS) -> None:
        self._max_forms = max_forms
        self._forms: OrderedDict[str, None] = OrderedDict()
        self._ordered: tuple[str, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets to mask."""
        before = len(self._forms)
        for form in (form for secret in secrets for form in _forms(secret)):
            before = -1 if form not in self._forms else before
            self._forms[form] = None
            self._forms.move_to_end(form)
        while len(self._forms) > self._max_forms:
            self._forms.popitem(last=False)
        if before != len(self._forms):
            self._ordered = tuple(sorted(self._forms, key=len, reverse=True))

    def cut(self, text: str, max_chars: int) -> str:
        """Return the first `max_chars` characters of `text` without secrets, also without the begin of a secret across the cut.

        The time depends on `max_chars`, not on the length of the text.
        """
        if len(text) <= max_chars:
            return self(text)[:max_chars]
        max_length = len(self._ordered[0]) if self._ordered else 1
        begin = self(text[: max_chars + max_length])
        # A secret that continues after `begin` is in its last characters, also if masks before it have shifted them.
        begin = begin[: min(max_chars, max(0, len(begin) - max_length + 1))]
        return _OPEN_URI.sub(rf"\1:{MASK}", begin) if "://" in begin else begin

    def __call__(self, text: str) -> str:
        """Return `text` without secrets, and without the passwords of any URI in it."""
        for form in self._ordered:  # by decreasing length, so that no secret leaves the end of another behind
            if form in text:
                text = text.replace(form, MASK)
        return _IN_URI.sub(rf"\1:{MASK}@", text) if "://" in text else text


def _forms(secret: str) -> set[str]:
    """Return the forms of a secret, and of each of its lines, since logs and tracebacks are cut at line ends."""
    parts = {secret, *(line.strip() for line in secret.splitlines())}
    written = {
        form for part in parts for form in (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1])
    }
    return {
        form
        for form in written | {quote(secret, safe="", errors="replace"), quote(secret, errors="replace")}
        if len(form) >= MIN_SECRET_CHARS
    }


mask: Final = Masker()
"""The masker of all fetched secrets, for log lines and descriptions of errors."""
