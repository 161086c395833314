"""A check of payload schemas in Spark's DDL without Spark, so that errors are reported before the first event.

It rejects schemas that Spark cannot read, and duplicate fields. `a int, b array<string>` and `struct<a: int>` are both valid. A schema in
JSON is left to Spark.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final, NamedTuple

# fmt: off
SIMPLE: Final = frozenset({
    "boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "float", "real", "double", "date", "time",
    "timestamp", "timestamp_ntz", "timestamp_ltz", "string", "binary", "void", "variant", "interval", "geometry", "geography",
})
_MORE: Final = frozenset({
    "year", "month", "day", "hour", "minute", "second", "to", "with", "without", "local", "time", "zone",
})
# fmt: on
NESTED: Final = frozenset({"array", "map", "struct"})
MAX_DECIMAL_DIGITS: Final = 38
_SIZED: Final = {"decimal": 2, "dec": 2, "numeric": 2, "char": 1, "character": 1, "varchar": 1, "time": 1, "geometry": 1, "geography": 1}
_ALL: Final = sorted({*SIMPLE, *NESTED, *_SIZED})
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>\w+)|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<sign>[<>(),:]))"
)


class _Field(NamedTuple):
    """A field's name, and the first word of its type."""

    name: str
    type: str


class _Token(NamedTuple):
    kind: str
    text: str


def check_ddl(schema: str) -> None:
    """Raise `ValueError` with the reason if Spark cannot read `schema` as the type of a payload."""
    if not schema.lstrip().startswith(("{", '"')):
        _Parser(_tokens(schema)).whole()


def column_types(schema: str) -> dict[str, str]:
    """Return the first word of each column's type, by the column's name as it is spelled.

    Raise `ValueError` if Spark cannot read `schema` as a list of columns.
    """
    fields = _Parser(_tokens(schema)).whole()
    if not fields:
        raise ValueError("it is not a list of columns.")
    return {field.name: field.type for field in fields.values()}


def _tokens(schema: str) -> list[_Token]:
    tokens, at = [], 0
    while schema[at:].strip():
        match = _TOKEN.match(schema, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{schema[at:].strip()[:20]!r} is not understood.")
        tokens.append(_Token(match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


class _Parser:
    """A recursive-descent parser. `_at` is the index of the next token."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def whole(self) -> dict[str, _Field]:
        """Parse fields, or one struct, up to the end. Return the fields by name in lower case; one struct has none here."""
        if not self._tokens:
            raise ValueError("it has no fields.")
        fields: dict[str, _Field] = {}
        if self._tokens[0].text.lower() == "struct" and self._sign(1) == "<":
            self._type()
        else:
            fields = self._fields(end="")
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at].text!r} is not expected behind a whole schema.")
        return fields

    def _fields(self, end: str) -> dict[str, _Field]:
        fields: dict[str, _Field] = {}
        while True:
            self._field(fields)
            if self._sign() == ",":
                self._at += 1
                continue
            if self._sign() == end or (not end and self._at == len(self._tokens)):
                return fields
            self._expected("a comma")

    def _field(self, fields: dict[str, _Field]) -> None:
        if self._at == len(self._tokens) or self._tokens[self._at].kind not in ("word", "quoted"):
            self._expected("the name of a field")
        name = self._tokens[self._at].text
        spelled = name[1:-1].replace("``", "`") if name.startswith("`") else name
        if spelled.lower() in fields:
            raise ValueError(f"the field {name!r} is there twice. Spark ignores case in names.")
        self._at += 1
        if self._sign() == ":":
            self._at += 1
        if self._at == len(self._tokens) or self._sign() in (",", ">"):
            raise ValueError(f"the field {name!r} has no type.")
        fields[spelled.lower()] = _Field(spelled, self._tokens[self._at].text.lower())
        self._type()
        self._notes()

    def _notes(self) -> None:
        """Parse the options of a type: COLLATE name, NOT NULL and COMMENT 'text'."""
        if self._word() == "collate" and self._word(1) is not None:
            self._at += 2
        if self._word() == "not" and self._word(1) == "null":
            self._at += 2
        if self._word() == "comment" and self._at + 1 < len(self._tokens) and self._tokens[self._at + 1].kind == "text":
            self._at += 2
            while self._text("text", 0) is not None:  # 'it''s' is two texts, concatenated
                self._at += 1

    def _type(self) -> None:
        word = self._word()
        if word is None:
            self._expected("a type")
        self._at += 1
        if word in NESTED:
            self._nested(str(word))
        elif word in _SIZED:
            sizes = self._size(_SIZED[str(word)])
            if _SIZED[str(word)] == 2:
                _check_decimal(*sizes)
        elif word in ("interval", "timestamp"):
            while self._word() in _MORE:
                self._at += 1
        elif word not in SIMPLE:
            near = get_close_matches(str(word), _ALL, n=1)
            raise ValueError(f"there is no type {word!r}." + (f" Do you mean {near[0]!r}?" if near else f" There are: {', '.join(_ALL)}."))

    def _nested(self, word: str) -> None:
        self._take("<", f"'<' behind {word!r}")
        if word == "struct" and self._sign() != ">":
            self._fields(end=">")
        elif word != "struct":
            self._type()
            if word == "map":
                self._take(",", "a comma and the type of the values")
                self._type()
        self._take(">", f"the '>' that ends {word!r}")

    def _size(self, max_sizes: int) -> list[int]:
        sizes: list[int] = []
        if self._sign() != "(":
            return sizes
        self._at += 1
        for number in range(max_sizes):
            if number and self._sign() != ",":
                break
            self._at += bool(number)
            if not (self._word() or "").isdecimal():
                self._expected("a number")
            sizes.append(int(self._word() or ""))
            self._at += 1
        self._take(")", "')'")
        return sizes

    def _take(self, sign: str, what: str) -> None:
        if self._sign() != sign:
            self._expected(what)
        self._at += 1

    def _sign(self, ahead: int = 0) -> str | None:
        return self._text("sign", ahead)

    def _word(self, ahead: int = 0) -> str | None:
        word = self._text("word", ahead)
        return None if word is None else word.lower()

    def _text(self, kind: str, ahead: int) -> str | None:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) and self._tokens[at].kind == kind else None

    def _expected(self, what: str) -> None:
        there = "the schema ends" if self._at >= len(self._tokens) else f"there is {self._tokens[self._at].text!r}"
        raise ValueError(f"{there} where {what} is expected.")


def _check_decimal(precision: int = 10, scale: int = 0) -> None:
    if precision > MAX_DECIMAL_DIGITS:
        raise ValueError(f"a decimal has at most {MAX_DECIMAL_DIGITS} digits, not {precision}.")
    if scale > precision:
        raise ValueError(f"a decimal of {precision} digits cannot have {scale} of them behind its point.")
