"""What supervisor and runner say to each other, and its form in bytes: four of length, then MessagePack. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from headrace.errors import ProcessFailed
from headrace.triggerer.ipc.trigger_messages import Commands, Ready, Steps

MOST_BYTES: Final = 256 * 1024 * 1024
_LENGTH: Final = 4


class _Frame(msgspec.Struct, array_like=True, tag=True):
    """One message. What is `bytes` is JSON of the machine API, passed on as it is."""


class Page(_Frame):
    """Runner: the project is imported, and this is a page of its triggers, for the `ProjectLoaded` that follows."""

    project: str
    page: bytes


class ProjectLoaded(_Frame):
    """Runner: the project is imported, and this is all that it declares, but for the triggers that came in pages."""

    project: str
    declaration: bytes


class ProjectInvalid(_Frame):
    """Runner: the project cannot be used, and why."""

    message: str
    hint: str | None


class Call(_Frame):
    """Runner: ask the api this; the answer bears the same number."""

    number: int
    method: str
    path: str
    content: bytes | None


class Report(_Frame):
    """Runner: a heartbeat's telemetry."""

    heartbeat: bytes


class Stopped(_Frame):
    """Runner: these triggers have stopped, under these epochs, and all that they resolved is stored."""

    epochs: dict[int, int]


class JobOver(_Frame):
    """Runner: this job is over for it."""

    reason: str


class Drained(_Frame):
    """Runner: everything has stopped."""


class CallSucceeded(_Frame):
    """Supervisor: what the api answered."""

    number: int
    content: bytes


class CallFailed(_Frame):
    """Supervisor: a call failed; the fields are those of `ApiError`, and `kind` is its class."""

    number: int
    kind: str
    message: str
    hint: str | None
    status: int | None
    problem: str | None
    retry_after: float | None


class Workload(_Frame):
    """Supervisor: a page of workloads, for the `RunTriggers` that follows."""

    page: bytes


class RunTriggers(_Frame):
    """Supervisor: run these triggers too, or again (their epochs), and those that are `gone` no more. All others run on.

    `workloads` are those of the ones that run again, in pages. `cleanup` are those that are to be confirmed as stopped, `backlogs` says
    which have something kept. `dropped` go for good: nothing waits on them any more.
    """

    epochs: dict[int, int] = {}
    gone: list[int] = []
    workloads: list[bytes] = []
    cleanup: list[int] = []
    backlogs: dict[int, int] = {}
    dropped: list[int] = []


class Drain(_Frame):
    """Supervisor: read no more, finish what is under way within so many seconds, and end."""

    seconds: float


Frame: TypeAlias = (
    Page
    | ProjectLoaded
    | ProjectInvalid
    | Call
    | Report
    | Stopped
    | JobOver
    | Drained
    | CallSucceeded
    | CallFailed
    | Workload
    | RunTriggers
    | Drain
    | Commands
    | Steps
    | Ready
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Return the bytes of one frame. Raises `ProcessFailed` where they are too many."""
    body = _encoder.encode(frame)
    if len(body) > MOST_BYTES:
        raise ProcessFailed(f"A message of {len(body)} bytes is too long for supervisor and runner.", hint="Fire smaller events.")
    return len(body).to_bytes(_LENGTH, "big") + body


class Decoder:
    """Makes frames of bytes, however they are cut."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now. Raises `ProcessFailed` where the bytes are none of ours."""
        pending = self._bytes
        pending += data
        frames: list[Frame] = []
        at = 0
        while len(pending) - at >= _LENGTH:
            length = int.from_bytes(pending[at : at + _LENGTH], "big")
            if length > MOST_BYTES:
                raise _garbled(f"a length of {length} bytes")
            end = at + _LENGTH + length
            if len(pending) < end:
                break
            try:
                with memoryview(pending) as view:
                    frames.append(_decoder.decode(view[at + _LENGTH : end]))
            except msgspec.MsgspecError as error:
                raise _garbled(str(error)) from error
            at = end
        del pending[:at]
        return frames


def _garbled(what: str) -> ProcessFailed:
    return ProcessFailed(
        f"Supervisor and runner do not understand each other: {what}.", hint="Was Headrace changed while it ran? Start the triggerer again."
    )
