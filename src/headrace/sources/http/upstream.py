"""Requests of senders over HTTP as an upstream. `headrace receive` accepts them; here they are read from its queue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from headrace.core.matching.paths import JsonPath
from headrace.core.signatures.schemes import SCHEMES
from headrace.errors import UpstreamError
from headrace.sources.http.decoding import RequestDecoding
from headrace.sources.http.request_headers import check_header_names
from headrace.sources.outgoing import LaneLayout
from headrace.sources.queue.producer import QueueProducer
from headrace.triggers.project_paths import PROJECT_FOLDER, parse_path, resolve_path
from headrace.triggers.upstream import Upstream

Verify: TypeAlias = Literal["standard-webhooks", "github", "stripe", "slack", "bearer", "basic", "none"]
"""How requests prove who sent them."""

DEFAULT_MAX_BYTES: Final = 1024**3
MIN_MAX_BYTES: Final = 1024**2
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class Http(Upstream):
    """Requests that `headrace receive` accepts at `/hooks/NAME` and stores durably before it answers.

    A request with JSON is one message; a batch of CloudEvents or lines of JSON are several. The receiver and the triggerer run on one host.

    Args:
        name: The name of the endpoint, which is the end of its URL.
        verify: How requests prove who sent them. `"none"` accepts requests of any sender.
        connection: The id of the connection whose password is the secret. By default the name.
        key: The path of the key in a message, such as `$.customer`, or in its headers, such as `@.headers.x-customer`. By default the key
            is `partitionkey` or `subject` of a CloudEvent.
        lanes: The number of lanes over which keys are spread. None keeps the lanes of an existing queue, and gives a new one a single lane.
        headers: Names of further headers that messages keep.
        folder: The folder of the queue. A relative path starts in the project's folder.
        max_bytes: Size of unread messages from which requests are refused with status 429.
    """

    def __init__(
        self,
        name: str,
        *,
        verify: Verify,
        connection: str | None = None,
        key: str | None = None,
        lanes: int | None = None,
        headers: Sequence[str] = (),
        folder: str | Path = "inbox",
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        _check_name(name)
        if verify not in SCHEMES:
            raise UpstreamError(f"Invalid verify {verify!r}.", hint=f"Use one of: {', '.join(SCHEMES)}.")
        if lanes is not None:
            LaneLayout.of(lanes)
        if isinstance(headers, str):
            raise UpstreamError(f"Invalid headers {headers!r}.", hint=f"Give a list: headers=[{headers!r}]")
        if max_bytes < MIN_MAX_BYTES:
            raise UpstreamError(f"Invalid max_bytes {max_bytes!r}.", hint=f"It is a number from {MIN_MAX_BYTES:,} on.")
        self.name = name
        self.verify: Verify = verify
        self.connection = None if verify == "none" else connection or name
        self.max_bytes = max_bytes
        self.decoding = RequestDecoding(SCHEMES[verify], None if key is None else JsonPath.parse(key), check_header_names(headers))
        self.lanes = lanes
        self._folder = parse_path(folder)

    @property
    def queue(self) -> Path:
        """The file of the queue. A relative folder starts in the project's folder."""
        return PROJECT_FOLDER.resolve(self._folder) / f"{self.name}.queue"

    def stream_key(self) -> str:
        """Return `http:` with the file of the queue."""
        return f"http:{self.queue}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "name": self.name,
            "verify": self.verify,
            "connection": self.connection,
            "key": None if self.decoding.key is None else self.decoding.key.text,
            "lanes": self.lanes,
            "headers": list(self.decoding.headers),
            "folder": str(self._folder),
            "max_bytes": self.max_bytes,
        }

    def producer(self) -> QueueProducer:
        """Return a new producer. It opens the queue in `open_stream`, and makes its folder first."""
        producer = QueueProducer(self.queue, self.lanes, make_folder=True)
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event from a request."""
        return "headrace.http.request"

    def relative_to(self, base: Path) -> Self:
        """Return the same upstream with an absolute folder, resolved against `base`."""
        return type(self)(**self.serialize()[1] | {"folder": resolve_path(base, self._folder)})


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UpstreamError(f"Invalid name {name!r} of an endpoint.", hint="It has letters, digits, '_' and '-', at most 100.")
