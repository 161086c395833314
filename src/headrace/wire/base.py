"""The base of every wire model, and the version and headers of the protocol."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, PlainSerializer

API_VERSION = "2026-11-21"
"""The date of the only version of the execution API. Its contract is recorded in `tests/integration/execution_api/recorded`."""
VERSION_HEADER = "Headrace-API-Version"
MAX_BODY_BYTES = 16 * 1024 * 1024
"""The API rejects larger bodies."""


def rfc3339(moment: datetime) -> str:
    """Return `moment` as RFC 3339 in UTC, with microseconds and a `Z`."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


Timestamp = Annotated[AwareDatetime, PlainSerializer(rfc3339, return_type=str, when_used="json")]
"""A time in UTC, in RFC 3339 on the wire."""


class WireModel(BaseModel):
    """A message or a part of one: immutable, without unknown names, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def encode(self) -> bytes:
        """Return the model as JSON. Raises `PydanticSerializationError` or `UnicodeEncodeError` for half of a surrogate pair."""
        return self.model_dump_json().encode()
