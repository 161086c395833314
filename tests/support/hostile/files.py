"""Odd things that happen in a watched folder: each kind is a function of the folder, some lines, and a number of its own."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

Lines = Sequence[bytes]
Happening = Callable[[Path, Lines, int], None]

ODD_NAMES: Final[dict[str, bytes]] = {
    "no UTF-8": b"\xff\xfe-%d.jsonl",
    "cut UTF-8": b"\xe2\x82-%d.jsonl",
    "newline": b"new\nline-%d.jsonl",
    "tab": b"tab\t-%d.jsonl",
    "escape": b"\x1b[31m-%d.jsonl",
    "blank": b" -%d.jsonl",
    "quote": b"'\"-%d.jsonl",
    "percent": b"%%2e%%2e-%d.jsonl",
    "backslash": b"a\\b-%d.jsonl",
    "at": b"a@b-%d.jsonl",
    "tilde": b"a~1-%d.jsonl",
    "colon": b"a:b-%d.jsonl",
    "brackets": b"[a]-%d.jsonl",
    "star": b"*-%d.jsonl",
    "braces": b"{n}-%d.jsonl",
    "dollar": b"$HOME-%d.jsonl",
    "minus": b"-rf-%d.jsonl",
    "emoji": "\N{PILE OF POO}-%d.jsonl".encode(),
    "composed": "\N{LATIN SMALL LETTER E WITH ACUTE}-%d.jsonl".encode(),
    "decomposed": b"e\xcc\x81-%d.jsonl",
    "right to left": "\N{RIGHT-TO-LEFT OVERRIDE}-%d.jsonl".encode(),
    "very long": b"x" * 230 + b"-%d.jsonl",
    "script": b"<script>-%d.jsonl",
    "query": b"a?b=c&d#e-%d.jsonl",
}


def put(path: Path | bytes, lines: Lines, *, end: bytes = b"\n") -> None:
    """Put a file into the folder by rename, as writers should."""
    target = os.fsencode(path)
    part = os.path.join(os.path.dirname(target), b".new-" + os.urandom(8).hex().encode())  # noqa: PTH118, PTH120 - bytes, no text
    with open(part, "wb") as file:  # noqa: PTH123
        file.write(b"\n".join(lines) + end)
    os.replace(part, target)  # noqa: PTH105


def _named(pattern: bytes) -> Happening:
    def happen(folder: Path, lines: Lines, n: int) -> None:
        put(os.fsencode(folder) + b"/" + pattern % n, lines)

    return happen


def _same_name(folder: Path, lines: Lines, n: int) -> None:
    put(folder / "same.jsonl", lines)


def _long_same_name(folder: Path, lines: Lines, n: int) -> None:
    put(folder / ("y" * 248 + ".jsonl"), lines)


def _appended(folder: Path, lines: Lines, n: int) -> None:
    with (folder / "grows.jsonl").open("ab") as file:
        file.write(b"\n".join(lines) + b"\n")


def _truncated(folder: Path, lines: Lines, n: int) -> None:
    with (folder / "shrinks.jsonl").open("wb") as file:
        file.write(b"\n".join(lines[: 1 + n % 3]) + b"\n")


def _half_a_line(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"half-{n}.jsonl", lines, end=b"")


def _deleted(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"deleted-{n}.jsonl", lines)
    (folder / f"deleted-{n}.jsonl").unlink(missing_ok=True)


def _replaced(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"replaced-{n}.jsonl", lines)
    put(folder / f"replaced-{n}.jsonl", [*lines, *lines])


def _rotated(folder: Path, lines: Lines, n: int) -> None:
    current = folder / "rotates.jsonl"
    if current.exists():
        current.rename(folder / f"rotates-{n}.jsonl")
    put(current, lines)


def _empty(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"empty-{n}.jsonl", [], end=b"")


def _loop(folder: Path, lines: Lines, n: int) -> None:
    (folder / f"loop-{n}.jsonl").symlink_to(f"loop-{n}.jsonl")


def _dangling(folder: Path, lines: Lines, n: int) -> None:
    (folder / f"dangling-{n}.jsonl").symlink_to("nowhere")


def _linked(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f".target-{n}", lines)
    (folder / f"linked-{n}.jsonl").symlink_to(f".target-{n}")


def _hard_linked(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f".hard-{n}", lines)
    (folder / f"hard-{n}.jsonl").hardlink_to(folder / f".hard-{n}")


def _folder(folder: Path, lines: Lines, n: int) -> None:
    (folder / f"folder-{n}.jsonl").mkdir()
    put(folder / f"folder-{n}.jsonl" / "inner.jsonl", lines)


def _pipe(folder: Path, lines: Lines, n: int) -> None:
    os.mkfifo(folder / f"pipe-{n}.jsonl")


def _socket(folder: Path, lines: Lines, n: int) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / f"s{n}.jsonl"))


def _forbidden(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"forbidden-{n}.jsonl", lines)
    (folder / f"forbidden-{n}.jsonl").chmod(0)


def _future(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"future-{n}.jsonl", lines)
    os.utime(folder / f"future-{n}.jsonl", (2**33, 2**33))


def _past(folder: Path, lines: Lines, n: int) -> None:
    put(folder / f"past-{n}.jsonl", lines)
    os.utime(folder / f"past-{n}.jsonl", (-1, -1))


def _done_is_a_file(folder: Path, lines: Lines, n: int) -> None:
    done = folder / "done"
    if done.is_dir() and not done.is_symlink():
        shutil.rmtree(done, ignore_errors=True)
    put(folder / f"done-gone-{n}.jsonl", lines)


def _many(folder: Path, lines: Lines, n: int) -> None:
    for part in range(50):
        put(folder / f"many-{n}-{part}.jsonl", lines[:1])


FILES: Final[dict[str, Happening]] = {
    **{f"name: {name}": _named(pattern) for name, pattern in ODD_NAMES.items()},
    "the same name again": _same_name,
    "the same long name again": _long_same_name,
    "appended to": _appended,
    "truncated and written again": _truncated,
    "no newline at the end": _half_a_line,
    "deleted at once": _deleted,
    "replaced at once": _replaced,
    "rotated": _rotated,
    "empty": _empty,
    "a link to itself": _loop,
    "a link to nothing": _dangling,
    "a link": _linked,
    "a hard link": _hard_linked,
    "a folder": _folder,
    "a pipe": _pipe,
    "a socket": _socket,
    "not to be read": _forbidden,
    "of the future": _future,
    "of before 1970": _past,
    "the done folder is removed": _done_is_a_file,
    "fifty at once": _many,
}
"""What may happen in the folder, by name."""


def choose(chance: random.Random) -> str:
    """Return a kind."""
    return chance.choice(tuple(FILES))
