"""Generated requests, valid and invalid by OpenAPI: no answer is a 5xx, and each answer conforms to the OpenAPI document.

`FUZZ_EXAMPLES` is how many are tried for each call, `FUZZ_DATABASE` over which database; `make fuzz-api` tries many more than the suite.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from headrace.api.middleware.version import DESCRIPTION_PATH
from headrace.api.openapi import ADMIN_DESCRIPTION_PATH
from headrace.wire.base import API_VERSION, VERSION_HEADER
from support.processes.execution_api import KEY, UNLIMITED, Api, serving
from support.processes.store import declaration, event, registration

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "5"))
DATABASE = os.environ.get("FUZZ_DATABASE", "sqlite")
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = frozenset({"/api/v1/stream"})
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]


class Fuzzed:
    """A running api with something in it, and a token for each kind of caller."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.jobs: dict[str, int] = {}
        self.tokens = {kind: self._fill(kind) for kind in ("triggerer", "pipeline", "worker")} | {"person": KEY}

    def _fill(self, kind: Any) -> str:
        job = self.api.ask("POST", "/execution/jobs", json=registration(kind).model_dump()).json()
        token: str = job["token"]
        self.jobs[kind] = job["job_id"]
        if kind == "triggerer":
            declared = declaration("first", "second").model_dump()
            self.api.ask("PUT", "/execution/projects/flights", token=token, json=declared).raise_for_status()
            self.api.ask("POST", "/execution/triggers/load", token=token, json={"capacity": 10}).raise_for_status()
            batch = {"epochs": {1: 1}, "events": [asdict(event("a"))]}
            self.api.ask("POST", "/execution/triggers/events", token=token, json=batch).raise_for_status()
        if kind == "worker":
            self.api.ask("POST", "/execution/task-runs", token=token, json={"run_id": "first", "task": "t"}).raise_for_status()
            self.api.ask("POST", "/execution/task-runs/claim", token=token, json={"capacity": 1, "tasks": ["t"]}).raise_for_status()
        return token

    def try_out(self, operation: APIOperation[Any, Any, Any, Any], version: str | None) -> None:
        cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in MODES))

        right = self._right(operation.path)
        meant = {"trigger_id": 1, "job_id": self.jobs.get(right, 1), "run_id": "first", "name": "flights", "scope": "main", "seq": 1}

        @given(case=cases, who=st.sampled_from([right, right, right, *self.tokens]), real=st.booleans())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize="FUZZ_EXAMPLES" not in os.environ,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def send(case: schemathesis.Case[Any], who: str, real: bool) -> None:
            if real and not operation.path.endswith("/complete"):  # which would end the job for all the others
                case.path_parameters |= {name: meant[name] for name in case.path_parameters if name in meant}
            headers = {"Authorization": f"Bearer {self.tokens[who]}"} | ({VERSION_HEADER: version} if version else {})
            case.call_and_validate(base_url=self.api.url, headers=headers, checks=CHECKS, timeout=30)

        send()

    @staticmethod
    def _right(path: str) -> str:
        """Return the kind of caller that a call is meant for."""
        if not path.startswith("/execution/") or path == "/execution/jobs":
            return "person"
        if path.startswith("/execution/task-runs/"):
            return "worker"
        return "pipeline" if path.startswith(("/execution/scopes/", "/execution/runs")) else "triggerer"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with serving(Path(tmp_path_factory.mktemp("api")), kind=DATABASE, rates=UNLIMITED) as api:
        yield Fuzzed(api)


def operations(fuzzed: Fuzzed, path: str) -> list[APIOperation[Any, Any, Any, Any]]:
    described = fuzzed.api.http.get(path).json()
    found = schemathesis.openapi.from_dict(described).get_all_operations()
    return [result.ok() for result in found if isinstance(result, Ok) and result.ok().path not in ENDLESS]


def test_the_execution_api_conforms_to_its_openapi_document(fuzzed: Fuzzed, subtests: Any) -> None:
    for operation in operations(fuzzed, DESCRIPTION_PATH):
        with subtests.test(call=operation.label):
            fuzzed.try_out(operation, API_VERSION)


def test_the_admin_api_conforms_to_its_openapi_document(fuzzed: Fuzzed, subtests: Any) -> None:
    for operation in operations(fuzzed, ADMIN_DESCRIPTION_PATH):
        with subtests.test(call=operation.label):
            fuzzed.try_out(operation, None)
