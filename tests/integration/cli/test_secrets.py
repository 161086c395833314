"""Errors of the commands for secrets: clear messages that do not contain the secret."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from headrace.wire.secrets import CreatedToken, TokenList
from support.processes.execution_api import Api


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
def test_errors_do_not_contain_the_secret(api: Api, arguments: list[str], given: str, says: str) -> None:
    refused = api.run(*arguments, given=given)
    assert refused.returncode in (1, 2)
    assert says in refused.stderr.replace("\n", " ")
    assert "swordfish" not in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stderr


def test_setting_a_variable_needs_the_deployment_key(api: Api) -> None:
    refused = api.run("variables", "set", "x", given="swordfish", key="")
    assert (refused.returncode, "HEADRACE_KEY" in refused.stderr) == (2, True)
    wrong = api.run("variables", "set", "x", given="swordfish", key="wrong")
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (1, False)


def test_a_new_key_is_a_fernet_key(api: Api) -> None:
    Fernet(api.run("secrets", "new-key").stdout.strip())


@pytest.mark.slow
def test_a_token_is_created_listed_and_revoked(api: Api) -> None:
    made = api.run("tokens", "create", "--scope", "admin", "--name", "ada", "--json")
    found = CreatedToken.model_validate_json(made.stdout)
    listed = TokenList.model_validate_json(api.run("tokens", "list", "--json").stdout)
    assert [(one.id, one.name, one.revoked) for one in listed.tokens] == [(found.id, "ada", None)]
    assert api.run("variables", "set", "x", given="1", key=found.token).returncode == 0
    assert "is revoked" in api.run("tokens", "revoke", found.id).stdout
    refused = api.run("variables", "set", "x", given="1", key=found.token)
    assert (refused.returncode, "was taken back" in refused.stderr) == (1, True)
    assert " ago" in api.run("tokens", "list").stdout
    assert api.run("tokens", "revoke", "nothing").returncode == 1
