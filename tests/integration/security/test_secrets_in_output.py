"""Untrusted names in output: no terminal escapes, no extra log lines, no SQL; and masked secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog

from headrace.cli.console import safe
from headrace.logs.setup import configure, masks, process_handler
from headrace.triggers.masking import mask, mask_event
from support.processes.command_line import headrace
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import declaration, holder, registration

NAMES = [
    "Robert'); DROP TABLE triggers; --",
    '" OR 1=1 --',
    "%_%' UNION SELECT value FROM connections --",
    "two\nlines",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "\x9b31m c1",
    "\u202egnp.exe",
    "back\b\b\b\rstart",
    '{"level": "error"}',
    "[bold]markup[/bold]",
    "\u2028\u2029",
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture
def _masked() -> Iterator[None]:
    kept, configuration, level = masks[:], structlog.get_config(), logging.getLogger().level
    masks[:] = [mask_event]
    yield
    masks[:] = kept
    structlog.configure(**configuration)
    logging.basicConfig(level=level, handlers=[], force=True)  # at INFO, PySpark would print an error at the end of all tests


def orders(text: str) -> set[str]:
    """The characters in a text that a terminal would obey."""
    return {one for one in text if safe(one) != one}


def logged(*, as_json: bool) -> io.StringIO:
    stream = io.StringIO()
    configure(logging.INFO, [process_handler(stream, as_json=as_json, colours=False)])
    return stream


@pytest.mark.parametrize("name", NAMES)
def test_names_with_sql_are_stored_as_plain_values(api: Api, name: str) -> None:
    with api.store.reading() as connection:
        before = connection.exec_driver_sql("SELECT count(*) FROM triggers").scalar_one()
    for path in ("/api/v1/events", "/api/v1/runs", "/api/v1/audit"):
        assert api.ask("GET", path, params={"subject": name, "type": name, "pipeline": name, "stream": name}).status_code in (200, 404)
    assert api.ask("GET", "/execution/connections/" + quote(name, safe=""), token=KEY).status_code in (401, 404, 422)
    job = api.store.jobs.register(registration(hostname=name))
    api.store.projects.declare(job.id, "flights", declaration(name[:200]))
    with api.store.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM triggers").scalar_one() == before + 1
        kept = connection.exec_driver_sql("SELECT name FROM triggers ORDER BY id DESC LIMIT 1").scalar_one()
    assert kept == name


def test_an_invalid_name_of_a_secret_is_refused(api: Api) -> None:
    for name in ("a b", "x;y", "%27", "a%2f..%2fb", "%00", "é"):
        assert api.ask("PUT", f"/api/v1/variables/{name}", json={"value": "1"}).status_code in (404, 422)


@pytest.mark.usefixtures("_masked")
@pytest.mark.parametrize("name", NAMES)
def test_a_log_line_has_one_line_and_no_control_characters(name: str) -> None:
    for as_json in (True, False):
        stream = logged(as_json=as_json)
        structlog.get_logger("x").warning(f"started {name}", trigger=name, nested={"name": name})
        (line,) = stream.getvalue().splitlines()
        assert stream.getvalue().count("\n") == 1
        assert not orders(line)
        if as_json:
            assert json.loads(line)["trigger"] == name


@pytest.mark.usefixtures("_masked")
@pytest.mark.parametrize("as_json", [True, False])
def test_secrets_are_masked_in_log_lines_and_tracebacks(as_json: bool) -> None:
    secret = 'pa"ss\\wörd-9'
    mask.add([secret, "line one of a key\nline two of a key"])
    stream = logged(as_json=as_json)
    log = structlog.get_logger("x")
    try:
        raise ValueError(f"cannot log in with {secret}")
    except ValueError:
        log.exception("login failed", url=f"postgresql://ada:{secret}@db/x", given={"deep": [secret]}, value=secret.encode())
    log.warning("other", url="amqp://guest:neverfetched@broker/", key="…line two of a key…")
    logging.getLogger("library").warning("library says %s", secret)
    text = stream.getvalue()
    assert "***" in text
    forms = [secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]]
    assert [form for form in (*forms, "neverfetched", "line two") if form in text] == []


def test_the_command_line_prints_no_terminal_escapes_from_names(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        owner = holder(api.store)
        api.store.projects.declare(owner.job_id, "flights", declaration(*NAMES))
        for arguments in (["triggers"], ["triggers", "--json"]):
            shown = headrace(*arguments, "--api-url", api.url, cwd=tmp_path)
            assert shown.returncode == 0
            assert not orders(shown.stdout.replace("\x1b[0m", ""))
            assert "DROP TABLE" in shown.stdout
            assert "[bold]markup" in shown.stdout
        assert {one["name"] for one in json.loads(shown.stdout)["triggers"]} == set(NAMES)
