"""`headrace send`: messages into a queue."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, BinaryIO, Final, NamedTuple

import msgspec
import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.core.matching.paths import JsonPath
from headrace.errors import UsageError
from headrace.sources.message import LONGEST_MESSAGE
from headrace.sources.queue.writer import QueueWriter

BLOCK: Final = 1024 * 1024
EPILOG: Final = """Examples:

[bold]headrace send orders.queue orders.jsonl[/bold]

[bold]headrace send orders.queue --json '{"customer": "Ada", "amount": 12.5}'[/bold]

[bold]tail -f orders.jsonl | headrace send orders.queue - --key '$.customer'[/bold]"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("send", rich_help_panel="Events in and out", epilog=EPILOG)(send)


def send(
    queue: Annotated[Path, typer.Argument(help="The queue's file; made if it is not there.", metavar="QUEUE", show_default=False)],
    file: Annotated[str | None, typer.Argument(help="JSON lines; - is standard input.", metavar="[FILE|-]", show_default=False)] = None,
    json: Annotated[list[str] | None, typer.Option("--json", help="A message; may be given again.", metavar="TEXT")] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Put all into this lane.", show_default=False)] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Where a message has its key: equal keys, same lane.", metavar="PATH", show_default=False)
    ] = None,
) -> None:
    """Send messages to a queue; each line, or each --json, is one JSON value. What it has counted is on the disk.

    A file is checked to its end before any of it is sent. From standard input, lines are sent as they come.
    """
    if (file is None) == (not json):
        raise UsageError(
            "Say what to send: a file, - for standard input, or messages with --json.", hint="See the examples of `headrace send --help`."
        )
    path = None if key is None else JsonPath.parse(key)
    post = _Post(queue, lane, path)
    if json:
        texts = [_Text(f"Message {number}", text.encode()) for number, text in enumerate(json, 1)]
        post.check(texts)
        post.send([texts])
    elif file == "-":
        post.send(_lines(sys.stdin.buffer, "standard input"))
    else:
        _send_file(Path(file or ""), post)


class _Text(NamedTuple):
    """The text of a message, and what to call it when it is wrong."""

    name: str
    data: bytes


class _Post:
    """Sends texts to the queue, each lot of them in one commit."""

    def __init__(self, queue: Path, lane: str | None, key: JsonPath | None) -> None:
        self._queue = queue
        self._lane = lane
        self._path = key

    def check(self, texts: Sequence[_Text]) -> None:
        """Raise `UsageError` when one of the texts cannot be sent."""
        for text in texts:
            if (wrong := self._wrong(text)) is not None:
                raise UsageError(f"{wrong} Nothing was sent.")

    def send(self, lots: Iterable[Sequence[_Text]]) -> None:
        """Send them all and say how many; on the first that cannot be sent, raise `UsageError` when all before it are."""
        sent = 0
        with QueueWriter(self._queue) as writer:
            try:
                for texts in lots:
                    good = list(takewhile(lambda text: self._wrong(text) is None, texts))
                    sent += writer.send_many(
                        (msgspec.Raw(text.data) for text in good), lane=self._lane, key=None if self._path is None else self._key
                    )
                    if len(good) < len(texts):
                        raise UsageError(f"{self._wrong(texts[len(good)])} Sent before it: {_messages(sent)}.")
            except KeyboardInterrupt:
                self._report(sent)
                raise
        self._report(sent)

    def _wrong(self, text: _Text) -> str | None:
        if len(text.data) > LONGEST_MESSAGE:
            return f"{text.name} is longer than {LONGEST_MESSAGE:,} bytes."
        try:
            value = msgspec.json.decode(text.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return f"{text.name} is not JSON: {error}."
        if self._path is not None and not isinstance(self._path.find(value), str | int | float):
            return f"{text.name} has no text or number at {self._path} to be its key."
        return None

    def _key(self, text: msgspec.Raw) -> str | None:
        return None if self._path is None else str(self._path.find(msgspec.json.decode(text)))

    def _report(self, sent: int) -> None:
        out.print(f"[bold green]✓[/] {_messages(sent)} sent to {escape(str(self._queue))}")


def _send_file(path: Path, post: _Post) -> None:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint="Is the path right?") from error
    with stream:
        if stream.seekable():
            for texts in _lines(stream, str(path)):
                post.check(texts)
            stream.seek(0)
        post.send(_lines(stream, str(path)))


def _lines(stream: BinaryIO, name: str) -> Iterator[list[_Text]]:
    """Yield the lines that are not blank, as many at a time as are available without waiting."""
    read = getattr(stream, "read1", stream.read)
    number, rest = 1, b""
    while data := read(BLOCK):
        *lines, rest = (rest + data).split(b"\n")
        yield [_Text(f"Line {at} of {name}", line) for at, line in enumerate(lines, number) if line.strip()]
        number += len(lines)
        if len(rest) > LONGEST_MESSAGE:
            break
    if rest.strip():
        yield [_Text(f"Line {number} of {name}", rest)]


def _messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}" if count else "no message"
