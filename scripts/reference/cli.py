"""The page of all commands, from the tree of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import typer.main
from rich.markup import render as from_markup

from headrace.cli.main import app
from headrace.cli.options import ApiUrl, AsJson, Home, Project

PAGE = "cli.md"
EXAMPLE = re.compile(r"\[bold\](.+?)\[/bold\]")
METAVARS = {str: "TEXT", int: "N", float: "NUMBER"}
COMMON = {name: get_args(option)[1].help for name, option in (("api_url", ApiUrl), ("home", Home), ("project", Project), ("json", AsJson))}

TABLE = ("| argument or option | default | meaning |", "|---|---|---|")

INTRODUCTION = """# Command line

`headrace COMMAND --help` prints the same text. `--debug` before the command prints tracebacks and logs all levels.
Most options are [settings](settings.md), so that `headrace.toml` or an environment variable can set them once.

- On a terminal, lists are tables. In a pipe or a file they have one line for each entry, without colours, and no text is cut.
- `--json` prints the response of the API server as JSON.
- Exit codes: 0 for success, 1 for a failure, 2 for a wrong command or setting, 130 for Ctrl-C.
  `headrace status --check` has codes of its own.
- Commands that read need no credential, unless the API server can be reached from other machines. Commands that change something need the
  deployment key: `HEADRACE_KEY`, the key in `--home`, or an admin's `HEADRACE_TOKEN`.
"""


def render() -> str:
    """Return the page."""
    sections = list(_walk(typer.main.get_command(app), "headrace"))
    lines = [INTRODUCTION, "## Common options", "", *_common_options([command for command, _ in sections])]
    for command, path in sections:
        lines += _section(command, path)
    return "\n".join(lines)


def _common_options(commands: list[Any]) -> Iterator[str]:
    """Yield the table of the options that many commands have."""
    rows = {
        parameter.name: _row(parameter, command.context_class(command, info_name=""))
        for command in commands
        for parameter in command.params
        if _is_common(parameter)
    }
    yield from (*TABLE, *(rows[name] for name in COMMON), "")


def _is_common(parameter: Any) -> bool:
    return parameter.name in COMMON and parameter.help == COMMON[parameter.name]


def _walk(group: Any, path: str) -> Iterator[tuple[Any, str]]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield command, f"{path} {name}"
            if hasattr(command, "commands"):
                yield from _walk(command, f"{path} {name}")


def _section(command: Any, path: str) -> Iterator[str]:
    context = command.context_class(command, info_name=path)
    yield f"{'#' * (len(path.split()))} {path}"
    yield ""
    yield _plain(inspect.cleandoc(command.help or ""))
    yield ""
    yield "```text"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{path} {re.sub(r'[{}]', '', usage)}"  # Typer writes required arguments in braces
    yield "```"
    yield ""
    parameters = [parameter for parameter in command.params if parameter.name != "help" and not _is_common(parameter)]
    if parameters:
        yield from (*TABLE, *(_row(parameter, context) for parameter in parameters), "")
    if common := [parameter.opts[0] for parameter in command.params if _is_common(parameter)]:
        yield f"[Common options](#common-options): {', '.join(f'`{option}`' for option in common)}."
        yield ""
    if command.epilog:
        yield from _epilog(command.epilog)


def _row(parameter: Any, context: Any) -> str:
    text, _, default = _plain(parameter.help or "").partition(" [default: ")
    default = default.removesuffix("]")
    value = parameter.get_default(context)
    if not default and parameter.param_type_name == "argument":
        default = "required" if parameter.required else ""
    elif not default and parameter.required:
        default = "required"
    elif not default and value not in (None, False, ""):
        default = f"`{value}`"
    if parameter.param_type_name == "argument":
        name = f"`{parameter.metavar or (parameter.name or '').upper()}`"
    else:
        name = ", ".join(f"`{option}`" for option in parameter.opts) + _metavar(parameter)
    return f"| {name} | {_cell(default) or '-'} | {_cell(text)} |"


def _metavar(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    annotation = parameter.type_descriptor.annotation
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    value = parameter.metavar or "|".join(map(str, choices)) or METAVARS.get(annotation, "VALUE")
    limits = [f"{sign} {limit:,}" for sign, limit in (("≥", parameter.min), ("≤", parameter.max)) if limit is not None]
    return _cell(f" {value}") + (f" ({', '.join(limits)})" if limits else "")


def _epilog(epilog: str) -> Iterator[str]:
    """Yield the texts of an epilog. Paragraphs that begin with a command become one block of code, with the rest as comments."""
    code: list[str] = []
    for paragraph in epilog.split("\n\n"):
        text = re.sub(r"(^|(?<= ))Examples?:( |$)", "", paragraph)
        commands = [_plain(command) for command in EXAMPLE.findall(text)]
        comment = _plain(EXAMPLE.sub("", text)).strip(" ,")
        if EXAMPLE.match(text):
            commands[-1] += f"  # {comment}" if comment else ""
            code += commands
        elif text:
            yield from (_plain(EXAMPLE.sub(r"`\1`", text)), "")
    if code:
        yield from ("```bash", *code, "```", "")


def _plain(text: str) -> str:
    return from_markup(text).plain


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
