"""Every `headrace` command in the README and the documentation exists, with its options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.command_lines import command_of, parse

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(console|sh|bash)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^ *(?:[\w-]+)?\$ +(.*)$", re.MULTILINE)
LINE = re.compile(r"^ *(.+)$", re.MULTILINE)
INLINE = re.compile(r"(?<!`)`headrace ((?:[a-z]+(?:-[a-z]+)*)(?: [a-z]+(?:-[a-z]+)*)*)[^`]*`(?!`)")
COMMENT = re.compile(r"(^|\s)#.*$")
ENDS = {"|", "||", "&&", ";", ">", "<", "&", "done;", "then"}


def commands(page: Path) -> list[list[str]]:
    """Return the words after `headrace` of each command in the console blocks of a page."""
    found = []
    for _, language, block in BLOCK.findall(page.read_text("utf-8")):
        prompt = PROMPT if language == "console" else LINE
        for line in prompt.findall(block.replace("\\\n", " ")):
            words = shlex.split(COMMENT.sub("", line))
            for at, word in enumerate(words):
                if word == "headrace" and (at == 0 or words[at - 1] in ENDS or "=" in words[at - 1]):
                    rest = words[at + 1 :]
                    end = next((number for number, one in enumerate(rest) if one in ENDS), len(rest))
                    found.append(rest[:end])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_console_blocks_parse(page: Path) -> None:
    for words in commands(page):
        try:
            parse(words)
        except Exception as error:
            pytest.fail(f"headrace {shlex.join(words)}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_sentences_exist(page: Path) -> None:
    for words in INLINE.findall(page.read_text("utf-8")):
        try:
            command_of(words.split())
        except Exception as error:
            pytest.fail(f"headrace {words}: {error}")


def test_commands_in_console_blocks_have_a_prompt() -> None:
    """A command without a prompt would not be checked."""
    for page in PAGES:
        for _, language, block in BLOCK.findall(page.read_text("utf-8")):
            assert language != "console" or not re.search(r"^ *headrace (?!\d)", block, re.MULTILINE), page.name


def test_documentation_has_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 50
