"""A cluster of YARN and HDFS on this machine, whose processes belong to another user, for tests with the marks `spark` and `brokers`.

Its containers can read Spark's packages and their own folders. Those of the driver are closed to them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from headrace.pipeline.spark.java import find_java
from support.processes.broker_server import installed, require_server
from support.processes.spark_cluster import QUICK_JVM, SPARK, link_packages

INSTALLED: Final = "hadoop-3.5.0/jars"
USER: Final = "nobody"
AS_OTHER_USER: Final = ("setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups")
SUBMITTER: Final = "headrace"
"""The user of HDFS and YARN who starts applications."""
_SETTINGS: Final = {
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
    "yarn.scheduler.minimum-allocation-mb": "256",
}


def require(python: Path) -> None:
    """Skip the test where no other user can run this Python, or where the mini cluster is not installed."""
    require_server("hadoop", INSTALLED)
    if os.geteuid() != 0 or shutil.which(AS_OTHER_USER[0]) is None:
        pytest.skip("only root can start processes of another user, with setpriv")
    script = f'LD_LIBRARY_PATH={libraries_of(python)} exec {python} -c "import pyarrow, pyspark"'
    probe = [*AS_OTHER_USER, "sh", "-c", script]  # setpriv itself still has the rights of root
    if subprocess.run(probe, capture_output=True, cwd="/").returncode != 0:
        pytest.skip(f"the user {USER} cannot run {python} with the packages of {SPARK.parent}")


def copy_python(folder: Path) -> Path:
    """Copy this Python for all users, with Spark's packages and no Headrace. Return its program."""
    library = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns("site-packages", "test", "tests", "__pycache__", "config-*", "idlelib")
    copied = folder / library.relative_to(sys.base_prefix)
    shutil.copytree(library, copied, ignore=ignored)
    for shared in library.parent.glob("libpython*.so*"):
        shutil.copy(shared, copied.parent)
    program = folder / "bin" / library.name
    program.parent.mkdir()
    shutil.copy(Path(sys.base_prefix) / "bin" / library.name, program)
    link_packages(copied / "site-packages")
    return program


def libraries_of(python: Path) -> Path:
    """Return the folder of the shared libraries of a Python that was copied."""
    return python.parents[1] / "lib"


def open_folder(name: str) -> Path:
    """Create a folder that all users can read, and write if they are the other user."""
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-{name}-"))
    folder.chmod(0o755)
    shutil.chown(folder, USER, "nogroup")
    return folder


class Yarn:
    """One resource manager, one node manager and one HDFS. A context manager."""

    def __init__(self) -> None:
        self.folder = open_folder("yarn")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a driver."""
        return {"HADOOP_CONF_DIR": str(self.folder / "conf"), "HADOOP_USER_NAME": SUBMITTER}

    def __enter__(self) -> Self:
        wrapper = self.folder / "java"
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(AS_OTHER_USER)} {find_java(self.folder) / "bin" / "java"} "$@"\n')
        wrapper.chmod(0o755)
        with (self.folder / "cluster.log").open("wb") as log:
            port, self._process = launch_gateway(
                jarpath=str(next((SPARK / "jars").glob("py4j-*.jar"))),
                classpath=f"{installed(INSTALLED)}/*:{SPARK / 'jars'}/*",
                javaopts=["-Xmx512m", *QUICK_JVM.split()],
                java_path=str(wrapper),
                die_on_exit=True,
                redirect_stdout=log,
                redirect_stderr=log,
                daemonize_redirect=True,
                cwd=str(self.folder),
                return_proc=True,
            )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        try:
            self._start(self._gateway.jvm)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        shutil.rmtree(self.folder)

    def _start(self, java: Any) -> None:
        settings = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, value in _SETTINGS.items():
            settings.set(name, value)
        settings.set("hadoop.tmp.dir", str(self.folder / "tmp"))
        settings.set("hdfs.minidfs.basedir", str(self.folder / "hdfs"))
        files = java.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(settings).numDataNodes(1).build()
        home = java.org.apache.hadoop.fs.Path(f"/user/{SUBMITTER}")
        files.getFileSystem().mkdirs(home)
        files.getFileSystem().setOwner(home, SUBMITTER, SUBMITTER)
        settings.set("fs.defaultFS", files.getURI().toString())
        cluster = java.org.apache.hadoop.yarn.server.MiniYARNCluster("headrace", 1, 1, 1)
        cluster.init(settings)
        cluster.start()
        text, configuration = java.java.io.StringWriter(), cluster.getConfig()
        configuration.unset("net.topology.node.switch.mapping.impl")  # a class of the mini cluster, which drivers do not have
        configuration.writeXml(text)
        conf = self.folder / "conf"
        conf.mkdir()
        (conf / "yarn-site.xml").write_text(text.toString())
        site = f"<configuration><property><name>fs.defaultFS</name><value>{files.getURI().toString()}</value></property></configuration>"
        (conf / "core-site.xml").write_text(site)

    def _end(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):  # containers
                process.kill()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._gateway.close()
