"""Record the contract of the execution API from its OpenAPI document: python scripts/record_contract.py

A test compares the document with the recording. So a change of the contract is seen in review.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from headrace.api.openapi import execution_api

CONTRACT: Final = Path(__file__).resolve().parent.parent / "tests/integration/execution_api/recorded/execution_api.json"
PROSE: Final = frozenset({"title", "description", "summary", "operationId", "tags"})


def contract(document: dict[str, Any]) -> dict[str, Any]:
    """Return the version, paths and schemas of an OpenAPI document, without text for readers."""
    return {
        "version": document["info"]["version"],
        "paths": _without_prose(document["paths"]),
        "schemas": _without_prose(document["components"]["schemas"]),
    }


def _without_prose(value: Any) -> Any:
    """Return `value` without prose, and with the names of required fields sorted: their order has no meaning."""
    if isinstance(value, dict):
        result = {key: _without_prose(each) for key, each in value.items() if key not in PROSE or isinstance(each, dict)}
        return {key: sorted(each) if key == "required" and isinstance(each, list) else each for key, each in result.items()}
    return [_without_prose(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    CONTRACT.parent.mkdir(exist_ok=True)
    CONTRACT.write_text(json.dumps(contract(execution_api()), indent=1, sort_keys=True) + "\n")
