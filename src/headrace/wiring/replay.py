"""A replay, in the process of its command."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from headrace.pipeline.spark.java import find_java
from headrace.project import Project
from headrace.replay.options import ReplayOptions
from headrace.replay.run import ReplayReport, run_replay
from headrace.replay.spark_tasks import Progress
from headrace.settings import Settings
from headrace.wiring.common import make_folder


def replay_history(settings: Settings, options: ReplayOptions, progress: Progress, *, project: Project | None) -> ReplayReport:
    """Order a whole history, on Spark. Ctrl-C ends it and is raised when nothing of it is left."""
    work = settings.home.absolute() / "spark"
    make_folder(work)
    find_java(work)
    stop = threading.Event()
    with ThreadPoolExecutor(1, "replay") as pool:
        # In a thread of its own: a signal must not break off what a thread is saying to the JVM.
        replaying = pool.submit(run_replay, options, project, progress, stop=stop)
        try:
            return replaying.result()
        except KeyboardInterrupt:
            stop.set()
            raise
