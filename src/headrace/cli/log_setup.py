"""Logging: to standard error, as text on a terminal and otherwise as JSON lines, and to the files of triggers and runs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.logs.context import Finder
from headrace.logs.protection import protect
from headrace.logs.setup import TargetHandler, configure, masks, process_handler
from headrace.logs.writer import LogFiles
from headrace.triggers.masking import mask_event

if TYPE_CHECKING:
    from headrace.settings import Settings


def set_up_logging(settings: Settings, *, quiet: bool = False, targets: Sequence[Finder] = ()) -> None:
    """Send structlog and `logging` to standard error, and to the logs that `targets` find.

    `quiet` logs only warnings and errors, except with `--debug`.
    """
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    if quiet and not settings.debug:
        level = max(level, logging.WARNING)
    terminal = sys.stderr.isatty()
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not terminal and not quiet)
    colours = terminal and not os.environ.get("NO_COLOR")
    handlers = [process_handler(sys.stderr, as_json=as_json, colours=colours, finders=targets)]
    masks[:] = [mask_event]
    if targets:  # such a process runs users' code
        files = LogFiles(settings.logs, _complain)
        protect(level, [*handlers, TargetHandler(files, targets)])
    else:
        configure(level, handlers)


def _complain(error: OSError) -> None:
    """Print on standard error that a log cannot be written. To log it would recurse."""
    sys.stderr.write(f"headrace: a log cannot be written: {error}\n")
