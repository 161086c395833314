"""The pipeline process."""

from __future__ import annotations

import signal
import threading

from headrace.logs.server import serve_logs_in_thread
from headrace.pipeline.driver import PipelineOptions, run_pipeline
from headrace.pipeline.spark.java import find_java
from headrace.pipeline.tables.sinks import check_formats
from headrace.settings import Settings
from headrace.wiring.common import make_folder, served_logs
from headrace.wiring.project import read_project


def run_pipelines(settings: Settings, *, begin: int | None = 1) -> None:
    """Run the project's pipelines until SIGINT or SIGTERM."""
    project = read_project(settings)
    project.declaration()
    check_formats(project.pipelines.values(), settings.table_location)
    work = settings.home.absolute() / "spark"
    make_folder(work)
    find_java(work)  # first, since the driver cannot run without Java
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serve_logs_in_thread(served_logs(settings)) as log_url:
        options = PipelineOptions(
            api_url=settings.url,
            key=settings.key,
            home=settings.home.absolute(),
            master=settings.master,
            conf=settings.spark_conf,
            scope=project.name,
            lookback=settings.lookback,
            tables=settings.table_location,
            log_url=log_url,
            begin=begin,
        )
        run_pipeline(project, options, stop)
