"""Forms (`application/x-www-form-urlencoded`) as JSON: each field is a text, or a list of texts if its name is repeated.

A form whose only field is `payload` carries JSON in it. GitHub sends forms of this kind on request, and Slack its interactions.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

import msgspec

from headrace.sources.http.rejection import reject_invalid

FORM: Final = "application/x-www-form-urlencoded"
PAYLOAD: Final = "payload"
MAX_FIELDS: Final = 1_000


def form_json(body: bytes) -> bytes:
    """Return the JSON text of a form. Raises `RequestRejected`."""
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=True, encoding="utf-8", errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        reject_invalid(f"The body is not a form: {error}.", f"Send at most {MAX_FIELDS:,} fields as name=value, joined with &, in UTF-8.")
    if len(fields) == 1 and fields[0][0] == PAYLOAD:
        return fields[0][1].encode()
    values: dict[str, list[str]] = {}
    for name, value in fields:
        values.setdefault(name, []).append(value)
    return msgspec.json.encode({name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()})
