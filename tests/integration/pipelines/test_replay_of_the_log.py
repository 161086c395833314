"""A task of a replay reads its range of the log from the API server, without a JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import delete

from headrace.client.pipeline import PipelineClient
from headrace.errors import PipelineError
from headrace.replay.inputs.event_log import _read
from headrace.replay.options import LogAccess
from headrace.store.tables.log import events
from headrace.wire.calls import execution as calls
from support.pipelines.kit import KEY, leg, running_api
from support.processes.store import registration


def test_pruning_of_unread_events_fails_the_replay(tmp_path: Path) -> None:
    with running_api(tmp_path) as api, PipelineClient(api.url, key=KEY) as client:
        client.register(registration("pipeline"))
        token = tmp_path / "token"
        token.write_text(client.token)
        trigger = api.triggers("legs.a")["legs.a"]
        api.feed([leg(f"{n}", trigger) for n in range(100)])
        access = LogAccess(api.url, token, 1, client.request(calls.GET_LOG_HEAD, None).head)
        parts = [pa.RecordBatch.from_pydict({"id": [0]})]
        assert sum(batch.num_rows for batch in _read(access, parts)) == 100
        api.store.prune(lambda connection: connection.execute(delete(events).where(events.c.seq <= 30)).rowcount)
        with pytest.raises(PipelineError, match="Retention deleted 30 of the events 1 to 100 before they were read"):
            list(_read(access, parts))
