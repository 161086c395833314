"""What must not be shown, and texts without it. Pure, and bounded in what it remembers and in what a text costs."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

MASK = "***"
SHORTEST = 4
"""A secret that is shorter is not masked: it would be found in half of all words, and so be told by what is missing."""

MOST = 4_096
"""How many forms of secrets are remembered; the one that was not told for longest is forgotten."""

_IN_URI = re.compile(r"(?<=://)([^\s/:@\"']*):([^\s/@\"']+)@")

_OPEN_URI = re.compile(r"(?<=://)([^\s/:@\"']*):[^\s/@\"']+$")
"""What may be a password at the end of a text that was cut."""


class Masker:
    """Replaces every secret that it was told, however it is written: as it is, in JSON, in Python or in a URI."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._forms: OrderedDict[str, None] = OrderedDict()
        self._ordered: tuple[str, ...] = ()

    def add(self, secrets: Iterable[str]) -> None:
        """Mask these from now on."""
        before = len(self._forms)
        for form in (form for secret in secrets for form in _forms(secret)):
            before = -1 if form not in self._forms else before
            self._forms[form] = None
            self._forms.move_to_end(form)
        while len(self._forms) > self._most:
            self._forms.popitem(last=False)
        if before != len(self._forms):
            self._ordered = tuple(sorted(self._forms, key=len, reverse=True))

    def cut(self, text: str, max_chars: int) -> str:
        """Return the beginning of `text` without secrets, at most `max_chars` characters: also one that lies across the cut shows nothing.

        It costs what the beginning costs, however long the text is.
        """
        if len(text) <= max_chars:
            return self(text)[:max_chars]
        longest = len(self._ordered[0]) if self._ordered else 1
        begin = self(text[: max_chars + longest])
        # A secret that goes on behind `begin` is in its last characters, also where masks before it have moved these to the front.
        begin = begin[: min(max_chars, max(0, len(begin) - longest + 1))]
        return _OPEN_URI.sub(rf"\1:{MASK}", begin) if "://" in begin else begin

    def __call__(self, text: str) -> str:
        """Return `text` without secrets, and without the passwords of any URI in it."""
        for form in self._ordered:  # the longest first, so that none leaves an end of another behind
            if form in text:
                text = text.replace(form, MASK)
        return _IN_URI.sub(rf"\1:{MASK}@", text) if "://" in text else text


def _forms(secret: str) -> set[str]:
    """Return how a secret may be written; of one with several lines, each line too, since logs and tracebacks cut there."""
    parts = {secret, *(line.strip() for line in secret.splitlines())}
    written = {
        form for part in parts for form in (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1])
    }
    return {form for form in written | {quote(secret, safe="", errors="replace"), quote(secret, errors="replace")} if len(form) >= SHORTEST}


mask: Final = Masker()
"""The secrets that were fetched; used by everything that writes lines or describes errors."""
