"""A worker in a thread, over HTTP, on a real api."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.client.job import JobClient
from headrace.project import Project
from headrace.store.queries.task_runs import task_run_list
from headrace.wire.task_runs import TaskRunResult, TaskRunSummary
from headrace.worker.execution import WorkerContext
from headrace.worker.worker import Worker
from support.processes.execution_api import KEY, Api
from support.processes.store import registration


@dataclass
class Working:
    api: Api
    folder: Path
    project: Project
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self, task: str, run_id: str = "one", **kwargs: Any) -> None:
        self.api.store.task_runs.start("flights", self.project.tasks[task].request(run_id, kwargs))

    def end(self, run_id: str = "one", states: tuple[str, ...] = ("succeeded", "failed", "skipped", "cancelled")) -> TaskRunResult:
        """Wait for the end of the run through the commit signal."""
        rung = threading.Condition()

        def ring() -> None:
            with rung:
                rung.notify_all()

        forget = self.api.store.task_runs.commit_signal.listen(ring)
        try:
            with rung:
                assert rung.wait_for(lambda: self.api.store.task_runs.result(run_id).state in states, 20)
        finally:
            forget()
        return self.api.store.task_runs.result(run_id)

    def runs(self) -> list[TaskRunSummary]:
        with self.api.store.reading() as connection:
            return task_run_list(connection, limit=100)


@contextmanager
def worker_on(api: Api, folder: Path, project: Project) -> Iterator[Working]:
    made = Working(api, folder, project)
    with JobClient(api.url, key=KEY) as client:
        around = WorkerContext("flights", folder / "tables", lambda: "the session")
        names = iter(f"worker-of-test-{n}" for n in range(9))
        worker = Worker(client, project.tasks, around, next_registration=lambda: next(names))
        thread = threading.Thread(target=worker.run, args=(registration("worker"), made.stop))
        thread.start()
        try:
            yield made
        finally:
            made.stop.set()
            thread.join(30)
    assert not thread.is_alive()
