"""Where log lines go: standard error, one line each, readable by people and by `grep`."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from headrace.settings import Settings


def set_up_logging(settings: Settings, *, quiet: bool = False) -> None:
    """Send structlog and the standard library's logging to standard error; `quiet`: warnings at the least, unless `--debug`."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    if quiet and not settings.debug:
        level = max(level, logging.WARNING)
    colours = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(level, logging.WARNING), stream=sys.stderr, format="%(asctime)s [%(levelname)s] %(name)s: %(message)s")
