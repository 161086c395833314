"""A real PostgreSQL on a free loopback port: Debian's package, a temporary folder, one server for the whole session, gone with it."""

from __future__ import annotations

import atexit
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql

from headrace.store.db.migrations import upgrade
from support.processes.ports import free_port

USER = "headrace"
PASSWORD = "s3cret for tests"  # a blank has to be quoted in a URL
QUOTED = "s3cret%20for%20tests"
TEMPLATE = "migrated"
KEPT = 12
MISSING = "PostgreSQL's server is not installed: run `python3 scripts/bootstrap.py dev` as root, or `apt-get install postgresql`."


class Postgres:
    """One server. It ends with the process that made it, however that ends."""

    def __init__(self, *, fsync: bool, settings: Mapping[str, str | int] | None = None) -> None:
        self._programs = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=None if fsync else in_memory()))
        self._as: dict[str, Any] = {"cwd": self.folder}
        if os.geteuid() == 0:  # postgres refuses to run as root
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
            self._as |= {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb", "--no-sync", "--auth=password", f"--pwfile={secret}", f"--username={USER}", "--encoding=UTF8", "--locale=C.UTF-8"
        )
        self._guard = self._guarded()
        self._fsync = fsync
        self._settings = dict(settings or {})
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Start it on its port, and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "on" if self._fsync else "off",
            "shared_buffers": "64MB",
            "max_connections": 60,
        } | self._settings
        options = " ".join(f"-c {name}={value}" if value != "" else f"-c {name}=''" for name, value in settings.items())
        self._run("pg_ctl", "-w", "-t", "60", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: "fast" ends its sessions, "immediate" is a crash."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """End it with SIGKILL, and its sessions after it. The next start waits until none is left."""
        postmaster = psutil.Process(int((self.folder / "data" / "postmaster.pid").read_text().split()[0]))
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, 60)

    def restart(self, mode: str = "fast") -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop it for good and remove what it had."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(60)

    def url(self, database: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://{USER}:{QUOTED}@127.0.0.1:{self.port}/{database}"

    def admin(self, text: str, *names: str) -> list[tuple[Any, ...]]:
        """Run one statement, with names quoted into its `{}`, and return its rows."""
        statement = sql.SQL(text).format(*map(sql.Identifier, names))
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        # its output goes to a file: a server that keeps a pipe open would keep us waiting for its end
        with (self.folder / "set-up").open("w+") as said:
            command = [str(self._programs / program), "-D", str(self.folder / "data"), *arguments]
            code = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **self._as).returncode
            said.seek(0)
            assert code == 0, f"{program}: {said.read()}"

    def _guarded(self) -> subprocess.Popen[bytes]:
        """Start what stops the server and removes its folder when we are gone: it waits for the end of a pipe that only we hold."""
        stop = [str(self._programs / "pg_ctl"), "-D", str(self.folder / "data"), "-m", "immediate", "stop"]
        waits = ["/bin/sh", "-c", 'cat; "$@"; rm -rf "$0"', str(self.folder), *stop]
        quiet = subprocess.DEVNULL
        guard: subprocess.Popen[bytes] = subprocess.Popen(
            waits, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True, **self._as
        )
        return guard


def programs() -> Path:
    """Return the folder of the newest server's programs; without one the test is skipped, or fails where CI is set."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if (folder / "initdb").exists()]
    if installed:
        return max(installed, key=lambda folder: float(folder.parent.name))
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(MISSING)
    pytest.skip(MISSING)


def in_memory() -> Path | None:
    """Return a folder that is kept in memory, where there is one with room: a database is made there in a twentieth of the time."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > 2**30 else None


@cache
def shared() -> Postgres:
    """Return the server that all tests share; a crash of the machine is none of their business, so it does not sync."""
    made = Postgres(fsync=False)
    atexit.register(made.close)
    made.admin("CREATE DATABASE {}", TEMPLATE)
    upgrade(made.url(TEMPLATE))
    return made


_databases: OrderedDict[Path, str] = OrderedDict()


def database_of(folder: Path, *, empty: bool = False) -> str:
    """Return the URL of the database that stands for `folder`, made when it is first asked for: with the schema, or `empty`."""
    server = shared()
    if folder not in _databases:
        while len(_databases) >= KEPT:
            server.admin("DROP DATABASE {} WITH (FORCE)", _databases.popitem(last=False)[1])
        name = f"test_{secrets.token_hex(6)}"
        # A copy of the template's files takes half the time of the default, which logs each of their pages.
        server.admin("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, "template0" if empty else TEMPLATE)
        _databases[folder] = name
    return server.url(_databases[folder])
