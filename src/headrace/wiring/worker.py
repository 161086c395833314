"""The worker process."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from uuid import uuid4

from headrace.client.job import JobClient
from headrace.client.secret_source import blocking_source
from headrace.logs.server import serve_logs_in_thread
from headrace.pipeline.spark.task_session import TaskSession
from headrace.settings import Settings
from headrace.triggers.secrets import SECRETS
from headrace.wiring.common import make_folder, registration, served_logs
from headrace.wiring.project import read_project
from headrace.worker.execution import WorkerContext
from headrace.worker.worker import Worker


def run_worker(settings: Settings) -> None:
    """Run the project's tasks until SIGINT or SIGTERM."""
    project = read_project(settings)
    home = settings.home.absolute()
    make_folder(home)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    functions = [task.function for task in project.tasks.values()]
    with (
        serve_logs_in_thread(served_logs(settings)) as log_url,
        JobClient(settings.url, key=settings.key) as client,
        TaskSession(
            f"{project.name} tasks", master=settings.master, conf=settings.spark_conf, work=home / "spark-worker", functions=functions
        ) as session,
    ):
        SECRETS.set_backend(blocking_source(client))
        tables = settings.table_location
        around = WorkerContext(project.name, tables if isinstance(tables, Path) else tables.location.url, session)
        worker = Worker(client, project.tasks, around, next_registration=lambda: uuid4().hex, capacity=settings.worker_concurrency)
        worker.run(registration("worker", project.name, log_url), stop)
