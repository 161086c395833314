"""`headrace send`, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.queue.upstream import Queue
from headrace.testing.contract.reading import reading
from support.processes.command_line import headrace

GUIDE = Path(__file__).parents[3] / "docs/guides/upstreams.md"
LINES = b'{"n": 1, "customer": "Ada"}\n\n{"n": 2, "customer": 7}\r\n{"n": 3, "customer": "Ada"}'


def send(*arguments: str, cwd: Path, text: bytes = b"") -> tuple[int, str]:
    run = headrace("send", *arguments, cwd=cwd, text=text)
    said = run.stdout + run.stderr
    assert "Traceback" not in said
    return run.returncode, said


def run_sender_of_guide(cwd: Path) -> None:
    script = GUIDE.read_text().partition('title="send_orders.py"\n')[2].partition("```")[0]
    subprocess.run([sys.executable, "-c", script], cwd=cwd, check=True, timeout=60)


async def messages(path: Path, count: int) -> list[Any]:
    async with reading(Queue(path).producer()) as held:
        return [raw for raw, _ in await held.take(count)]


async def test_files_standard_input_and_arguments_are_sent(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_bytes(LINES)
    assert send("orders.queue", "orders.jsonl", cwd=tmp_path) == (0, "✓ 3 messages sent to orders.queue\n")
    assert send("orders.queue", "-", "--lane", "eu", cwd=tmp_path, text=b"4\n") == (0, "✓ 1 message sent to orders.queue\n")
    assert send("orders.queue", "--json", "5", "--json", '{"n": 6}', cwd=tmp_path) == (0, "✓ 2 messages sent to orders.queue\n")
    assert send("orders.queue", "-", cwd=tmp_path) == (0, "✓ 0 messages sent to orders.queue\n")
    arrived = await messages(tmp_path / "orders.queue", 6)
    assert [raw.value for raw in arrived if raw.lane.startswith("0@")] == [
        {"n": 1, "customer": "Ada"},
        {"n": 2, "customer": 7},
        {"n": 3, "customer": "Ada"},
        5,
        {"n": 6},
    ]
    assert [raw.value for raw in arrived if raw.lane.startswith("eu@")] == [4]


async def test_the_sender_of_the_guide_sends_its_messages(tmp_path: Path) -> None:
    run_sender_of_guide(tmp_path)
    arrived = await messages(tmp_path / "orders.queue", 3)
    assert sorted((raw.value["id"], raw.key) for raw in arrived) == [(1, "Ada"), (2, "Bo"), (3, "Ada")]


async def test_a_key_is_taken_from_the_message(tmp_path: Path) -> None:
    assert send("orders.queue", "-", "--key", "$.customer", cwd=tmp_path, text=LINES)[0] == 0
    assert [raw.key for raw in await messages(tmp_path / "orders.queue", 3)] == ["Ada", "7", "Ada"]


async def test_a_file_with_an_invalid_line_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_bytes(LINES + b"\nnope\n5\n")
    code, said = send("orders.queue", "orders.jsonl", cwd=tmp_path)
    assert code == 2
    assert "Line 5 of orders.jsonl is not JSON" in said
    assert "Nothing was sent" in said
    assert not (tmp_path / "orders.queue").exists()


async def test_standard_input_is_sent_up_to_the_first_invalid_line(tmp_path: Path) -> None:
    code, said = send("orders.queue", "-", cwd=tmp_path, text=LINES + b"\nnope\n5\n")
    assert code == 2
    assert "Line 5 of standard input is not JSON" in said
    assert "Sent before it: 3 messages." in said
    assert len(await messages(tmp_path / "orders.queue", 3)) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["orders.queue"], "Name one thing to send"),
        (["orders.queue", "orders.jsonl", "--json", "1"], "Name one thing to send"),
        (["orders.queue", "missing.jsonl"], "missing.jsonl cannot be read"),
        (["orders.queue", "--json", "{"], "Message 1 is not JSON"),
        (["orders.queue", "orders.jsonl", "--key", "customer"], "not a path"),
        (["orders.queue", "orders.jsonl", "--key", "$.name"], "no text or number at $.name"),
        (["orders.queue", "orders.jsonl", "--lane", "a@b"], "cannot be the name of a lane"),
        (["nowhere/orders.queue", "orders.jsonl"], "does not exist"),
        (["orders.jsonl", "orders.jsonl"], "not a queue"),
        ([".", "orders.jsonl"], "is a folder"),
    ],
)
def test_invalid_arguments_are_reported_in_a_clear_message(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "orders.jsonl").write_bytes(b"\n".join([LINES] * 12))
    code, said = send(*arguments, cwd=tmp_path)
    assert code == 2
    assert "error:" in said
    assert words in said.replace("\n", " ")


def test_help_has_examples(tmp_path: Path) -> None:
    code, said = send("--help", cwd=tmp_path)
    assert code == 0
    assert "headrace send orders.queue orders.jsonl" in said


def test_a_line_above_the_size_limit_is_refused(tmp_path: Path) -> None:
    code, said = send("orders.queue", "-", cwd=tmp_path, text=b"1\n" + b"1" * 4_000_000)
    assert code == 2
    assert "Line 2 of standard input is longer than" in said
