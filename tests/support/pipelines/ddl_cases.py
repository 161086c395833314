"""Schemas of payloads that Spark reads, and some that it does not, with what is said of them."""

from __future__ import annotations

from typing import Final

RIGHT: Final = [
    "n long",
    "customer string, amount double, status string",
    "leg_id STRING, tail INT",
    "a: int, b: string",
    "  a int ,\n b bigint  ",
    "struct<a: int, b: array<string>>",
    "a array<struct<name: string, n: int>>, m map<string, array<double>>",
    "a struct<>",
    "l decimal(38, 38), price decimal(10, 2), d decimal, e decimal(5), c char(3), v varchar(20)",
    "`odd name` string, `a``b` int",
    "a int not null, b string comment 'it''s', c string NOT NULL COMMENT \"x\"",
    "t timestamp, d date, n timestamp_ntz, b binary, f float, s smallint, y tinyint, o boolean",
    "i interval year to month, j interval day to second",
    "a string collate UTF8_LCASE",
    "type string, order string, date string, int int",
]
WRONG: Final = {
    "strng foo, bar": "'foo'",
    "foo strng": "Do you mean 'string'?",
    "foo string, bar": "'bar' has no type",
    "": "no fields",
    "  ": "no fields",
    ",": "the name of a field",
    "foo": "'foo' has no type",
    "a int,": "the name of a field",
    "a int b string": "a comma",
    "a array<int": "'>'",
    "a array": "'<' behind 'array'",
    "a map<string>": "a comma",
    "a struct<b>": "'b' has no type",
    "a decimal(x)": "a number",
    "a decimal(39)": "at most 38 digits",
    "a array<decimal(10, 11)>": "cannot have 11 of them",
    "a int, a int) ": "there twice",
    "a int; b int": "not understood",
    "a string>": "a comma",
}
