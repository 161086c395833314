"""The only composition root: puts real parts together into processes."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.errors import ResourceError
from headrace.project import load_project
from headrace.triggers.import_allowlist import MODULES
from headrace.wire.control.jobs import JobKind, RegisterJob

if TYPE_CHECKING:
    from headrace.logs.server import Serving
    from headrace.project import Project
    from headrace.replay.options import ReplayOptions
    from headrace.replay.run import ReplayReport
    from headrace.replay.spark_tasks import Progress
    from headrace.settings import Settings

# Heavy parts are imported by the process that needs them: the triggerer never loads SQLAlchemy, nor the api PySpark.


def read_project(settings: Settings) -> Project:
    """Import the project file; from then on, triggers come from its modules and headrace's only. Raises `ProjectError`."""
    project = load_project(settings.project)
    MODULES.only({*settings.modules, *project.modules()}, settings.project.resolve().parent)
    return project


def serve_api(settings: Settings, *, migrate: bool, new_secrets: bool = False) -> None:
    """Serve the api until SIGINT or SIGTERM; `new_secrets` gives up what is kept under keys that are lost."""
    import uvicorn

    from headrace.api.app import create_app
    from headrace.api.middleware.access_control import Exposure
    from headrace.api.server import BoundedHttp, Server
    from headrace.process.alerts import published_api
    from headrace.store import Liveness, open_store
    from headrace.store.db.single_instance import sole_api
    from headrace.store.retention.pruner import Tidier
    from headrace.store.secrets.keyring import Keyring
    from headrace.store.task_runs.deadline_timer import Alarm

    _make_folder(settings.home)
    keyring = Keyring(settings.with_fernet_keys().keys)
    liveness = Liveness(round(settings.job_timeout * 1_000_000))
    with (
        _listen(settings.host, settings.port) as listener,
        sole_api(settings.database),
        closing(open_store(settings.database, migrate=migrate, liveness=liveness, keyring=keyring, new_secrets=new_secrets)) as store,
        Alarm(store),
        Tidier(store, settings.retention),
        published_api(settings.home, _url_of(settings, listener)) as local_alerts,
    ):
        app = create_app(
            store,
            key=settings.key,
            logs=settings.logs.absolute(),
            exposure=Exposure(settings.outside, frozenset(settings.hosts)),
            webhook_private=settings.webhook_private,
            local_alerts=local_alerts,
        )
        gc.freeze()  # a full collection would go through all of the program: a tenth of a second, within somebody's claim
        config = uvicorn.Config(app, http=BoundedHttp, log_config=None, access_log=False, timeout_graceful_shutdown=5, lifespan="on")
        Server(app, config).run(sockets=[listener])


async def run_triggerer(settings: Settings) -> None:
    """Run the project's triggers until SIGINT or SIGTERM; the second signal does not wait for what is under way."""
    from headrace.client.triggerer import TriggererClient
    from headrace.logs.server import serving
    from headrace.process.local_deployment import runner_environment
    from headrace.process.signals import calling
    from headrace.triggerer.supervisor.runner_process import RunnerCommand, RunnerProcess
    from headrace.triggerer.supervisor.session import Orders, Share
    from headrace.triggerer.supervisor.stall_detector import Patience
    from headrace.triggerer.supervisor.supervisor import Policy, Supervisor

    # This process imports nothing of the user's, and the one that does has no key.
    command = RunnerCommand((sys.executable, "-m", "headrace", "runner"), runner_environment(settings))
    share = Share(settings.capacity, tuple(name.strip() for name in settings.queues.split(",") if name.strip()))
    policy = Policy(share=share, patience=Patience(stuck=settings.stuck_timeout))
    orders = Orders()
    async with (
        serving(_logs(settings)) as log_url,
        TriggererClient(settings.url, key=settings.key, timeout=settings.api_timeout) as api,
    ):
        incarnations = _Incarnations(log_url)
        with calling(orders.told):
            gc.freeze()  # as the api does: its loop keeps the job alive
            await Supervisor(api, lambda: RunnerProcess.start(command), incarnations.next, policy).run(orders)


def run_runner(settings: Settings) -> None:
    """Run the streams and watches of a triggerer; `run_triggerer` starts this."""
    from headrace.client.triggerer import TriggererClient
    from headrace.triggerer.runner.runner import Limits
    from headrace.triggerer.supervisor.stall_detector import Patience
    from headrace.wiring import runner

    patience = Patience(stuck=settings.stuck_timeout)
    limits = Limits(settings.ack_timeout, settings.advance_timeout, settings.retry_wait, patience)
    command = (sys.executable, "-m", "headrace", "trigger-process")
    runner.run_runner(
        lambda: read_project(settings), limits, lambda session: TriggererClient(settings.url, key="", session=session), command
    )


def run_trigger_process(settings: Settings) -> None:
    """Run what users wrote of triggers; `run_runner` starts this."""
    from headrace.client.triggerer import TriggererClient
    from headrace.wiring import runner

    runner.run_trigger_process(lambda: read_project(settings), lambda session: TriggererClient(settings.url, key="", session=session))


class _Incarnations:
    """The jobs of one triggerer, one after the other; each says which it stands in for."""

    def __init__(self, log_url: str) -> None:
        self._log_url = log_url
        self._last: RegisterJob | None = None

    def next(self, project: str) -> RegisterJob:
        """Return the next job."""
        if self._last is None:
            job = _registration("triggerer", project, self._log_url)
        else:
            job = self._last.model_copy(update={"registration_id": uuid4().hex, "replaces": self._last.registration_id})
        self._last = job
        return job


def run_pipelines(settings: Settings, *, begin: int | None = 1) -> None:
    """Run the project's pipelines until SIGINT or SIGTERM."""
    from headrace.logs.server import serving_in_thread
    from headrace.pipeline.driver import PipelineOptions, run_pipeline
    from headrace.pipeline.spark.java import find_java

    project = read_project(settings)
    project.declaration()
    work = settings.home.absolute() / "spark"
    _make_folder(work)
    find_java(work)  # before anything is waited for: without Java there is nothing to wait for
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with serving_in_thread(_logs(settings)) as log_url:
        options = PipelineOptions(
            api_url=settings.url,
            key=settings.key,
            home=settings.home.absolute(),
            master=settings.master,
            conf=settings.spark_conf,
            scope=project.name,
            lookback=settings.lookback,
            tables=settings.table_folder,
            log_url=log_url,
            begin=begin,
        )
        run_pipeline(project, options, stop)


def run_worker(settings: Settings) -> None:
    """Run the project's tasks until SIGINT or SIGTERM."""
    from headrace.client.secret_source import blocking_source
    from headrace.client.worker import WorkerClient
    from headrace.logs.server import serving_in_thread
    from headrace.pipeline.spark.task_session import TaskSession
    from headrace.triggers.secrets import SECRETS
    from headrace.worker.execution import Surroundings
    from headrace.worker.worker import Worker

    project = read_project(settings)
    home = settings.home.absolute()
    _make_folder(home)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    functions = [task.function for task in project.tasks.values()]
    with (
        serving_in_thread(_logs(settings)) as log_url,
        WorkerClient(settings.url, key=settings.key) as client,
        TaskSession(
            f"{project.name} tasks", master=settings.master, conf=settings.spark_conf, work=home / "spark-worker", functions=functions
        ) as session,
    ):
        SECRETS.use(blocking_source(client.get))
        around = Surroundings(project.name, settings.table_folder, session)
        worker = Worker(client, project.tasks, around, next_registration=lambda: uuid4().hex, capacity=settings.task_slots)
        worker.run(_registration("worker", project.name, log_url), stop)


def replay(settings: Settings, options: ReplayOptions, progress: Progress, *, project: Project | None) -> ReplayReport:
    """Order a whole history, on Spark. Ctrl-C ends it and is raised when nothing of it is left."""
    from headrace.pipeline.spark.java import find_java
    from headrace.replay.run import run_replay

    work = settings.home.absolute() / "spark"
    _make_folder(work)
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


def _logs(settings: Settings) -> Serving:
    """Return what this process serves of its logs, and to whom."""
    from headrace.logs.server import Serving

    return Serving(settings.logs.absolute(), settings.key, settings.url, socket.gethostname())


def _registration(kind: JobKind, project: str, log_url: str) -> RegisterJob:
    """Return who this process is; the supervisor says which dead process it stands in for."""
    from headrace.process.child import REGISTRATION, REPLACES

    return RegisterJob(
        registration_id=os.environ.get(REGISTRATION) or uuid4().hex,
        replaces=os.environ.get(REPLACES),
        kind=kind,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        project=project,
        log_url=log_url,
        version=version("headrace"),
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"Cannot make the folder {folder}: {error.strerror}.", hint="Choose another with --home.") from error


def _url_of(settings: Settings, listener: socket.socket) -> str:
    """Return where clients of this machine find the api, also where it took any port that was free."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104  it is compared, not bound
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ResourceError(
            f"The api cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}.",
            hint="Stop what listens there, or choose another with --port.",
        ) from error
