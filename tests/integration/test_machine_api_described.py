"""OpenAPI of the machine API: one description for each version, and an older version's never changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.api.middleware.version import DESCRIPTION_PATH, SPOKEN
from headrace.api.openapi import PEOPLE_PATH
from headrace.wire.base import API_VERSION, FIRST_API_VERSION, VERSION_HEADER
from headrace.wire.problem import PROBLEM_JSON
from support.processes.execution_api import Api, serving

RECORDED = Path(__file__).parent / "recorded"
WORDS = {"title", "description", "summary", "operationId", "tags"}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(Path(tmp_path_factory.mktemp("api"))) as running:
        yield running


def described(api: Api, version: str) -> dict[str, Any]:
    response = httpx.get(f"{api.url}{DESCRIPTION_PATH}?version={version}", trust_env=False)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    return answer


def promised(value: Any) -> Any:
    """Return a description without what is only said to people, and without the order of required names, which says nothing."""
    if isinstance(value, dict):
        kept = {key: promised(each) for key, each in value.items() if key not in WORDS or isinstance(each, dict)}
        return {key: sorted(each) if key == "required" and isinstance(each, list) else each for key, each in kept.items()}
    return [promised(each) for each in value] if isinstance(value, list) else value


def promises(document: dict[str, Any]) -> dict[str, Any]:
    schemas = {name: each for name, each in document["components"]["schemas"].items() if name != "Problem"}
    return {"paths": promised(document["paths"]), "schemas": promised(schemas)}


@pytest.mark.parametrize("version", [version for version in SPOKEN if version != API_VERSION])
def test_an_older_version_stays_what_it_was(api: Api, version: str) -> None:
    """Where this fails, a wire model or a route was changed: declare in api/middleware/changes.py what the older version had."""
    recorded = promised(json.loads((RECORDED / f"{version}.openapi.json").read_text()))
    now = promises(described(api, version))
    assert sorted(now["paths"]) == sorted(recorded["paths"])
    for part in ("paths", "schemas"):
        for name, before in recorded[part].items():
            assert now[part][name] == before, name
    assert now == recorded


def test_the_newest_version_says_what_came(api: Api) -> None:
    old, new = described(api, FIRST_API_VERSION), described(api, API_VERSION)
    assert old["info"]["version"] == FIRST_API_VERSION
    assert new["info"]["version"] == API_VERSION
    assert set(new["paths"]) - set(old["paths"]) >= {"/execution/triggers/{trigger_id}/event"}
    fields = {name: set(document["components"]["schemas"]["EventBatch"]["properties"]) for name, document in (("old", old), ("new", new))}
    assert fields["new"] - fields["old"] == {"receipts"}


def test_the_header_picks_a_description_too_and_the_newest_is_what_nobody_asks_for(api: Api) -> None:
    def version(**headers: str) -> str:
        answer: str = httpx.get(api.url + DESCRIPTION_PATH, headers=headers, trust_env=False).json()["info"]["version"]
        return answer

    assert (version(), version(**{VERSION_HEADER: FIRST_API_VERSION})) == (API_VERSION, FIRST_API_VERSION)
    unknown = httpx.get(f"{api.url}{DESCRIPTION_PATH}?version=1999-01-01", trust_env=False)
    assert (unknown.status_code, unknown.headers["content-type"]) == (404, PROBLEM_JSON)


@pytest.mark.parametrize("version", SPOKEN)
def test_every_call_describes_its_problems_and_who_may_call(api: Api, version: str) -> None:
    for path, methods in described(api, version)["paths"].items():
        for operation in methods.values():
            assert PROBLEM_JSON in operation["responses"]["4XX"]["content"], path
            assert operation["security"] == [{"bearer": []}], path
            assert [each["schema"]["const"] for each in operation["parameters"] if each["name"] == VERSION_HEADER] == [version], path


def test_the_peoples_api_describes_itself_and_nothing_else(api: Api) -> None:
    document = httpx.get(api.url + PEOPLE_PATH, trust_env=False).json()
    assert "/api/v1/status" in document["paths"]
    assert not [path for path in document["paths"] if path.startswith("/execution")]
