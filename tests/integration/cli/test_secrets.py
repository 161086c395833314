"""What the secrets' commands refuse, and that they say it in words without what was given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet

from headrace.wire.secrets import CreatedToken, TokenList
from support.processes.execution_api import KEY, Api, serving


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api")) as running:
        yield running


def headrace(api: Api, *arguments: str, given: str = "", key: str = KEY) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    environment = kept | {"HEADRACE_API_URL": api.url, "HEADRACE_KEY": key, "HEADRACE_HOME": "/nonexistent"}
    command = [sys.executable, "-m", "headrace", *arguments]
    return subprocess.run(command, env=environment, input=given, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "given", "says"),
    [
        (["connections", "set", "x"], "swordfish", "neither a URI nor a JSON object"),
        (["connections", "set", "x"], '{"kind": "a b", "password": "swordfish"}', "its kind cannot be used"),
        (["connections", "set", "x"], "", "There is no uri or json"),
        (["connections", "set", "a b"], "http://:swordfish@host", "should match pattern"),
        (["variables", "set", "x"], "swordfish" * 10_000, "longer than"),
        (["variables", "remove", "nothing"], "", "no variable 'nothing'"),
        (["connections", "show", "nothing"], "", "no connection 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_told_without_what_was_given(api: Api, arguments: list[str], given: str, says: str) -> None:
    refused = headrace(api, *arguments, given=given)
    assert refused.returncode in (1, 2)
    assert says in refused.stderr.replace("\n", " ")
    assert "swordfish" not in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_a_key_nothing_is_set_and_it_says_what_is_missing(api: Api) -> None:
    refused = headrace(api, "variables", "set", "x", given="swordfish", key="")
    assert (refused.returncode, "HEADRACE_KEY" in refused.stderr) == (2, True)
    wrong = headrace(api, "variables", "set", "x", given="swordfish", key="wrong")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (1, False)


def test_a_new_key_is_one(api: Api) -> None:
    Fernet(headrace(api, "secrets", "new-key").stdout.strip())


@pytest.mark.slow
def test_a_token_is_made_listed_and_taken_back(api: Api) -> None:
    made = headrace(api, "tokens", "create", "--scope", "admin", "--name", "ada", "--json")
    found = CreatedToken.model_validate_json(made.stdout)
    listed = TokenList.model_validate_json(headrace(api, "tokens", "list", "--json").stdout)
    assert [(one.id, one.name, one.revoked) for one in listed.tokens] == [(found.id, "ada", None)]
    assert headrace(api, "variables", "set", "x", given="1", key=found.token).returncode == 0
    assert "is revoked" in headrace(api, "tokens", "revoke", found.id).stdout
    refused = headrace(api, "variables", "set", "x", given="1", key=found.token)
    assert (refused.returncode, "was taken back" in refused.stderr) == (1, True)
    assert " ago" in headrace(api, "tokens", "list").stdout
    assert headrace(api, "tokens", "revoke", "nothing").returncode == 1
