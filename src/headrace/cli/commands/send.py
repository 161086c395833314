"""`headrace send`: send messages to a queue."""

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
from headrace.cli.groups import examples
from headrace.cli.rendering import count
from headrace.core.matching.paths import JsonPath
from headrace.errors import UsageError
from headrace.sources.outgoing import MAX_MESSAGE_BYTES
from headrace.sources.queue.writer import QueueWriter

BLOCK_BYTES: Final = 1024 * 1024
EPILOG: Final = examples(
    "headrace send orders.queue orders.jsonl",
    """headrace send orders.queue --json '{"customer": "Ada", "amount": 12.5}'""",
    "tail -f orders.jsonl | headrace send orders.queue - --key '$.customer'",
)


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("send", rich_help_panel="Events in and out", epilog=EPILOG)(send)


def send(
    queue: Annotated[Path, typer.Argument(help="File of the queue. It is created if it is missing.", metavar="QUEUE", show_default=False)],
    file: Annotated[
        str | None, typer.Argument(help="File of JSON lines, or - for standard input.", metavar="[FILE|-]", show_default=False)
    ] = None,
    json: Annotated[list[str] | None, typer.Option("--json", help="A message. Can be repeated.", metavar="TEXT")] = None,
    lane: Annotated[str | None, typer.Option("--lane", help="Lane for all messages.", metavar="LANE")] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="Path of the key of a message. Messages with equal keys go to the same lane.", metavar="PATH", show_default=False
        ),
    ] = None,
) -> None:
    """Send messages to a queue. Each line, or each --json, is one JSON value. Counted messages are on the disk.

    A file is checked completely before any message is sent. Lines of standard input are sent as they arrive.
    """
    if (file is None) == (not json):
        raise UsageError(
            "Name one thing to send: a file, - for standard input, or messages with --json.",
            hint="See the examples of `headrace send --help`.",
        )
    path = None if key is None else JsonPath.parse(key)
    sender = _Sender(queue, lane, path)
    if json:
        texts = [_Text(f"Message {number}", text.encode()) for number, text in enumerate(json, 1)]
        sender.check(texts)
        sender.send([texts])
    elif file == "-":
        sender.send(_lines(sys.stdin.buffer, "standard input"))
    else:
        _send_file(Path(file or ""), sender)


class _Text(NamedTuple):
    """The text of a message, and its name in errors."""

    name: str
    data: bytes


class _Sender:
    """Sends batches of texts to the queue, each in one commit."""

    def __init__(self, queue: Path, lane: str | None, key: JsonPath | None) -> None:
        self._queue = queue
        self._lane = lane
        self._path = key

    def check(self, texts: Sequence[_Text]) -> None:
        """Raise `UsageError` if a text cannot be sent."""
        for text in texts:
            if (reason := self._invalid(text)) is not None:
                raise UsageError(f"{reason} Nothing was sent.")

    def send(self, batches: Iterable[Sequence[_Text]]) -> None:
        """Send all texts and print their number. At the first invalid text, raise `UsageError` after all before it are sent."""
        sent = 0
        with QueueWriter(self._queue) as writer:
            try:
                for texts in batches:
                    valid = list(takewhile(lambda text: self._invalid(text) is None, texts))
                    sent += writer.send_many(
                        (msgspec.Raw(text.data) for text in valid), lane=self._lane, key=None if self._path is None else self._key
                    )
                    if len(valid) < len(texts):
                        raise UsageError(f"{self._invalid(texts[len(valid)])} Sent before it: {count(sent, 'message')}.")
            except KeyboardInterrupt:
                self._report(sent)
                raise
        self._report(sent)

    def _invalid(self, text: _Text) -> str | None:
        if len(text.data) > MAX_MESSAGE_BYTES:
            return f"{text.name} is longer than {MAX_MESSAGE_BYTES:,} bytes."
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
        out.print(f"[bold green]✓[/] {count(sent, 'message')} sent to {escape(str(self._queue))}")


def _send_file(path: Path, sender: _Sender) -> None:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", hint="Check the path.") from error
    with stream:
        if stream.seekable():
            for texts in _lines(stream, str(path)):
                sender.check(texts)
            stream.seek(0)
        sender.send(_lines(stream, str(path)))


def _lines(stream: BinaryIO, name: str) -> Iterator[list[_Text]]:
    """Yield the lines that are not blank, in batches that are available without waiting."""
    read = getattr(stream, "read1", stream.read)
    number, rest = 1, b""
    while data := read(BLOCK_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        yield [_Text(f"Line {at} of {name}", line) for at, line in enumerate(lines, number) if line.strip()]
        number += len(lines)
        if len(rest) > MAX_MESSAGE_BYTES:
            break
    if rest.strip():
        yield [_Text(f"Line {number} of {name}", rest)]
