"""A scope from before the API kept its state: the driver refuses it with a command, and the command goes on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from alembic import command
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError
from headrace.store import open_store
from headrace.store.db.schema import alembic_config
from headrace.store.dialects.engines import engines, parsed
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor
from support.pipelines.kit import KEY, leg, running_api
from support.pipelines.plans import plan
from support.pipelines.scopes import Scope
from support.processes.store import registration, sqlite_of

BEFORE_PLANS = "r0024"


def read_before_plans(folder: Path, cursor: Cursor) -> None:
    """Leave a database with a scope that an older version has read, at its schema; then bring it to that of today."""
    with running_api(folder) as api:
        trigger = api.triggers("legs.a")["legs.a"]
        api.feed(leg(f"{n}", trigger) for n in range(1, 10))
        job = api.store.jobs.register(registration("pipeline")).id
        api.store.scope_leases.acquire(job, "flights")
        api.store.plans.store(job, "flights", plan(1, cursor=cursor))
        api.store.jobs.complete(job, CompleteJob(state="succeeded"))
    for down in (True, False):
        readers, writer = engines(parsed(sqlite_of(folder)))
        with writer.begin() as connection:
            (command.downgrade if down else command.upgrade)(alembic_config(connection), BEFORE_PLANS if down else "head")
        readers.dispose()
        writer.dispose()
    open_store(sqlite_of(folder)).close()


@pytest.mark.parametrize(
    ("kept", "choice", "rest"),
    [(6, 0, ["7", "8", "9"]), (4, 0, ["5", "6", "7", "8", "9"]), (4, 1, ["7", "8", "9"])],
    ids=["nothing waited", "what waited is read again", "what waited is given up"],
)
def test_a_scope_of_an_older_version_goes_on_after_the_reset_that_its_driver_names(
    kept: int, choice: int, rest: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_before_plans(tmp_path, Cursor(cursor=6, batch=1, kept=kept))
    with running_api(tmp_path) as api, PipelineClient(api.url, key=KEY) as first, PipelineClient(api.url, key=KEY) as second:
        first.register(registration("pipeline"))
        with pytest.raises(PipelineError, match="has read the log up to event 6, and the API has no state of it") as refused:
            Scope(first, legs=("*", "micro"))
        first.complete(CompleteJob(state="failed"))
        commands = re.findall(r"headrace (scopes reset \w+ --from \d+)", str(refused.value.hint))
        monkeypatch.setenv("HEADRACE_API_URL", api.url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        done = CliRunner().invoke(app, [*shlex.split(commands[choice]), "--yes"])
        assert done.exit_code == 0, done.output
        second.register(registration("pipeline"))
        scope = Scope(second, legs=("*", "micro"))
        assert scope.told(scope.next()) == [("legs", rest)]
