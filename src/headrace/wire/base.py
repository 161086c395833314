"""The base of every wire model, and the version and headers of the protocol."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, PlainSerializer

API_VERSION = "2026-11-21"
"""The date of the execution API's one version; a recorded contract holds it (`tests/integration/recorded`)."""
VERSION_HEADER = "Headrace-API-Version"
MAX_BODY_BYTES = 16 * 1024 * 1024
"""The api reads no body that is larger."""


def rfc3339(moment: datetime) -> str:
    """Return `moment` as RFC 3339 in UTC, with microseconds and a `Z`."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


Timestamp = Annotated[AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
"""A moment in UTC; RFC 3339 on the wire."""


class WireModel(BaseModel):
    """One message, or a part of one; frozen, and strict about names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
