"""The contract suite as upstream authors use it: from the guide, without pytest plugins, and on faulty brokers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[4] / "docs/guides"
FILE = re.compile(r'```python title="(\w+\.py)"\n(.*?)```', re.DOTALL)
FILES = dict(FILE.findall((GUIDES / "testing.md").read_text()))
MY_BROKER = dict(FILE.findall((GUIDES / "triggers.md").read_text()))["my_broker.py"]
MY_CLIENT = Path(__file__).parents[3] / "support/sources/my_client.py"
TEST_MY_BROKER = """
from headrace.testing import Broker, SourceContract
from my_broker import MyBroker
from my_client import SERVERS, Server


class Driver(Broker):
    progress = durable = False

    def __init__(self, url):
        self.url = url
        SERVERS[url] = Server()

    def send(self, lane, messages):
        SERVERS[self.url].send(lane, list(messages))

    def upstream(self):
        return MyBroker(self.url)


class TestMyBroker(SourceContract):
    many = 2_000

    def make_broker(self, folder):
        return Driver(str(folder))
"""
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("outbox_upstream.py", "test_outbox_upstream.py"):
        (tmp_path / name).write_text(FILES[name])
    return tmp_path


def run(folder: Path, *options: str) -> tuple[int, str]:
    ran = subprocess.run([*PYTEST, *options, str(folder)], cwd=folder, capture_output=True, text=True, timeout=240)
    return ran.returncode, ran.stdout + ran.stderr


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_upstream_of_the_guide_fulfils_the_contract(folder: Path) -> None:
    change(folder / "test_outbox_upstream.py", "many = 10_000", "many = 2_000")
    code, output = run(folder)
    assert (code, "28 passed" in output) == (0, True), output


@pytest.mark.slow
def test_the_producer_of_the_guide_to_triggers_fulfils_the_contract(tmp_path: Path) -> None:
    write_my_broker(tmp_path)
    code, output = run(tmp_path)
    assert (code, "failed" in output) == (0, False), output


@pytest.mark.slow
def test_a_producer_that_advances_past_failed_messages_fails_the_contract(tmp_path: Path) -> None:
    write_my_broker(tmp_path)
    change(tmp_path / "my_broker.py", "if outcome.failed:", "if False:")
    code, output = run(tmp_path, "-k", "test_all_failed_messages_are_redelivered_in_order")
    assert (code, "1 failed" in output) == (1, True), output


def write_my_broker(folder: Path) -> None:
    (folder / "my_broker.py").write_text(MY_BROKER)
    (folder / "my_client.py").write_text(MY_CLIENT.read_text())
    (folder / "test_my_broker.py").write_text(TEST_MY_BROKER)


@pytest.mark.parametrize(
    ("old", "new", "failing"),
    [
        ("max(?, coalesce(committed.id, 0))", "?", "test_advanced_messages_are_not_redelivered"),
        # The reader skips messages, so that the test waits for them until its timeout.
        pytest.param("ORDER BY outbox.id", "ORDER BY random()", "test_a_lane_is_in_order_and_its_positions_rise", marks=pytest.mark.slow),
        ("yield RawEvent(data, topic, last)", "yield RawEvent(data.strip(b'0'), topic, last)", "test_messages_arrive_byte_for_byte"),
    ],
)
def test_an_upstream_that_breaks_the_contract_fails_its_test(folder: Path, old: str, new: str, failing: str) -> None:
    change(folder / "outbox_upstream.py", old, new)
    code, output = run(folder, "-k", failing)
    assert (code, "1 failed" in output) == (1, True), output


@pytest.mark.slow
def test_tests_of_missing_promises_are_skipped(folder: Path) -> None:
    change(
        folder / "test_outbox_upstream.py", "class OutboxBroker(Broker):", "class OutboxBroker(Broker):\n    redelivery = progress = False"
    )
    code, output = run(folder, "-k", "redelivered or lag", "-rs")
    assert code == 0, output
    assert "OutboxBroker does not promise: redelivery" in output
    assert "passed" not in output


def test_without_pytest_the_error_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['pytest'] = None\nfrom headrace.testing import SourceContract"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: The contract suite and the fixtures of headrace.testing need pytest. Install it: pip install pytest"
    )
