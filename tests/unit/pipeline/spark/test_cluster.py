from __future__ import annotations

import socket

import pytest

from headrace.errors import PipelineError
from headrace.pipeline.spark.cluster import check_classic, check_reachable, hint_of, is_cluster, is_remote


@pytest.mark.parametrize(
    ("master", "cluster", "remote"),
    [
        ("local", False, False),
        ("local[*]", False, False),
        ("local[4, 2]", False, False),
        ("local-cluster[2,1,1024]", True, False),
        ("spark://host:7077", True, True),
        ("yarn", True, True),
        ("k8s://https://kubernetes.default.svc", True, True),
    ],
)
def test_cluster_and_remote_masters_are_distinguished(master: str, cluster: bool, remote: bool) -> None:
    assert (is_cluster(master), is_remote(master)) == (cluster, remote)


def test_one_reachable_master_is_sufficient() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


def test_unreachable_masters_are_named_with_the_reason() -> None:
    with pytest.raises(PipelineError) as caught:
        check_reachable("spark://127.0.0.1:1,nonsense")
    for said in ("spark://127.0.0.1:1,nonsense", "127.0.0.1:1: Connection refused", "nonsense: not HOST:PORT"):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("master", "conf", "variable", "said"),
    [
        ("sc://spark.example", {}, "", "the master chooses (sc://spark.example)"),
        ("local", {"spark.remote": "sc://spark.example"}, "", "spark.remote chooses"),
        ("yarn", {}, "local[2]", "the variable SPARK_REMOTE chooses"),
    ],
)
def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], variable: str, said: str) -> None:
    check_classic("local", {})
    monkeypatch.setenv("SPARK_REMOTE", variable)
    with pytest.raises(PipelineError) as caught:
        check_classic(master, conf)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("master", "said"),
    [("yarn", "HADOOP_CONF_DIR"), ("k8s://host", "image"), ("spark://host:1", "spark://HOST:7077"), ("local[2]", "memory")],
)
def test_the_hint_depends_on_the_master(master: str, said: str) -> None:
    assert said in hint_of(master)
