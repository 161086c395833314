"""Trace ids of events and runs (W3C Trace Context): from the upstream, or derived from immutable data, and therefore stable."""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from typing import Final
from uuid import UUID

from headrace.core.identity import event_key

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


TRACEPARENT: Final = "traceparent"
"""The field of a raw event, and the header, that has its trace."""


def traceparent_in(value: object) -> str | None:
    """Return the W3C `traceparent` at the top level of a raw event, as in CloudEvents, or None if it has no valid one."""
    traceparent = value.get(TRACEPARENT) if isinstance(value, dict) else None
    return traceparent if isinstance(traceparent, str) and _TRACEPARENT.fullmatch(traceparent) else None


def trace_id_in(traceparent: str) -> str:
    """Return the trace id (32 hex digits) of a valid `traceparent`."""
    return traceparent.split("-")[1]


def event_trace(source: str, id: str, trace: str | None) -> str:
    """Return the `traceparent` of an event: its own, or one derived from its key, which is as long as a trace id."""
    if trace is not None:
        return trace
    key = event_key(source, id)
    return f"00-{key.hex()}-{blake2b(key, digest_size=8).hexdigest()}-01"


def run_trace_id(run_id: str) -> str:
    """Return the trace id of a run (32 hex digits): its id if that is a UUID, else a digest of it."""
    try:
        return UUID(run_id).hex
    except ValueError:
        return sha256(run_id.encode(errors="surrogatepass")).hexdigest()[:32]
