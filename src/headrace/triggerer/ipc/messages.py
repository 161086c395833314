"""Messages between supervisor and runner, and their encoding: four bytes of length, then MessagePack. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from headrace.errors import ProcessFailed
from headrace.triggerer.ipc.trigger_messages import Commands, Ready, Steps

MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
_LENGTH: Final = 4


class _Frame(msgspec.Struct, array_like=True, tag=True):
    """One message. Fields of type `bytes` are JSON of the execution API, forwarded unchanged."""


class Page(_Frame):
    """Runner: the project is imported, and this is a page of its triggers, for the `ProjectLoaded` that follows."""

    project: str
    page: bytes


class ProjectLoaded(_Frame):
    """Runner: the project is imported. This is its declaration, without the triggers that were sent in pages."""

    project: str
    declaration: bytes


class ProjectInvalid(_Frame):
    """Runner: the project cannot be used, for this reason."""

    message: str
    hint: str | None


class Call(_Frame):
    """Runner: make this call of the API. The answer has the same number."""

    number: int
    method: str
    path: str
    content: bytes | None


class Report(_Frame):
    """Runner: the telemetry of a heartbeat."""

    heartbeat: bytes


class Stopped(_Frame):
    """Runner: these triggers have stopped, under these epochs, and everything they resolved is stored."""

    epochs: dict[int, int]


class JobOver(_Frame):
    """Runner: its job is over."""

    reason: str


class Drained(_Frame):
    """Runner: everything has stopped."""


class CallSucceeded(_Frame):
    """Supervisor: the API's response body."""

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
    """Supervisor: start or restart the triggers in `epochs`, and stop those in `released`. All others continue.

    `workloads` has the workloads of the triggers to start, in pages. Triggers in `cleanup` must be confirmed as
    stopped up to these epochs. `backlogs` has the triggers whose backlog is not empty. No task run waits for the triggers in `dropped`.
    """

    epochs: dict[int, int] = {}
    released: list[int] = []
    workloads: list[bytes] = []
    cleanup: dict[int, int] = {}
    backlogs: dict[int, int] = {}
    dropped: list[int] = []


class Drain(_Frame):
    """Supervisor: stop reading, finish the work in flight within `seconds`, and exit."""

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
    """Return the bytes of one frame. Raises `ProcessFailed` if it is too large."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise ProcessFailed(f"A message of {len(body)} bytes is too long for supervisor and runner.", hint="Fire smaller events.")
    return len(body).to_bytes(_LENGTH, "big") + body


class Decoder:
    """Decodes frames from chunks of bytes of any size."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are now complete. Raises `ProcessFailed` if the bytes are not valid frames."""
        pending = self._bytes
        pending += data
        frames: list[Frame] = []
        at = 0
        while len(pending) - at >= _LENGTH:
            length = int.from_bytes(pending[at : at + _LENGTH], "big")
            if length > MAX_FRAME_BYTES:
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
