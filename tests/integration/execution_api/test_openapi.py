"""The OpenAPI document of the execution API equals its recorded contract; that of the admin API has only its own calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripts.record_contract import CONTRACT, contract

from headrace.api.middleware.version import DESCRIPTION_PATH
from headrace.api.openapi import ADMIN_DESCRIPTION_PATH
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.problem import PROBLEM_JSON
from support.processes.execution_api import Api, serving


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(Path(tmp_path_factory.mktemp("api"))) as running:
        yield running


def described(api: Api) -> dict[str, Any]:
    response = httpx.get(api.url + DESCRIPTION_PATH, trust_env=False, timeout=60)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    return answer


def test_the_openapi_document_equals_the_recorded_contract(api: Api) -> None:
    """Where this fails, a wire model or a route was changed. If that is meant, record the contract again: make record-contract."""
    recorded, served = json.loads(CONTRACT.read_text()), contract(described(api))
    assert sorted(served["paths"]) == sorted(recorded["paths"])
    for part in ("paths", "schemas"):
        for name, before in recorded[part].items():
            assert served[part][name] == before, name
    assert served == recorded


def test_every_call_documents_its_problems_version_and_credentials(api: Api) -> None:
    for path, methods in described(api)["paths"].items():
        for operation in methods.values():
            assert PROBLEM_JSON in operation["responses"]["4XX"]["content"], path
            assert operation["security"] == [{"bearer": []}], path
            versions = [each["schema"]["const"] for each in operation["parameters"] if each["name"] == VERSION_HEADER]
            assert versions == [API_VERSION], path


def test_the_openapi_document_of_the_admin_api_has_only_its_calls(api: Api) -> None:
    document = httpx.get(api.url + ADMIN_DESCRIPTION_PATH, trust_env=False, timeout=60).json()
    assert "/api/v1/status" in document["paths"]
    assert not [path for path in document["paths"] if path.startswith("/execution")]
