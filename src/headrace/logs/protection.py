"""Logging in a process that runs users' code: no configuration by a user's module unmasks secrets or redirects logs.

One process runs several triggers or pipelines, so the configuration of one module must not change the logs of another.
Handlers that a user's module adds receive records of `logging`, without secrets, in addition to Headrace's own
handlers.
"""

from __future__ import annotations

import logging
import logging.config
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import structlog

from headrace.logs.setup import masked_text, quiet_libraries, structlog_options


def protect(level: int, handlers: Iterable[logging.Handler]) -> None:
    """Route structlog and `logging`, from `level` up, to the handlers for the rest of the process's life.

    Call it once, before any user's module is imported.
    """
    ours = frozenset(handlers)
    root = logging.getLogger()
    configure_structlog = structlog.configure
    factory = _LoggerFactory(level)

    def restore() -> None:
        configure_structlog(**structlog_options(level, factory))
        root.setLevel(level)
        quiet_libraries(level)

    root.handlers.clear()
    restore()
    _call_first(ours)
    _mask_others(ours)
    for module, names in (
        (structlog, ("configure", "configure_once", "reset_defaults")),
        (structlog.stdlib, ("recreate_defaults",)),
        (logging, ("basicConfig",)),
    ):
        for name in names:
            setattr(module, name, _followed_by(getattr(module, name), restore))
    for name in ("dictConfig", "fileConfig"):
        setattr(logging.config, name, _followed_by(_without_disabling(getattr(logging.config, name)), restore))


class _LoggerFactory(structlog.stdlib.LoggerFactory):
    """Creates loggers that `logging` does not know by name, so that no configuration reaches them."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def __call__(self, *args: Any) -> logging.Logger:
        named = super().__call__(*args)
        logger = type(named)(named.name, self._level)
        logger.propagate = False
        return logger


def _call_first(ours: frozenset[logging.Handler]) -> None:
    """Send each record to our handlers first. They are attached to no logger, so users cannot remove them."""
    call_theirs = logging.Logger.callHandlers

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        for handler in ours:
            if record.levelno >= handler.level:
                handler.handle(record)
        if logger.hasHandlers():  # without one, `logging` would write to standard error itself
            call_theirs(logger, record)

    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign, assignment]


def _mask_others(ours: frozenset[logging.Handler]) -> None:
    """Remove secrets from the output of all other handlers."""
    format_plain = logging.Handler.format

    def format_masked(handler: logging.Handler, record: logging.LogRecord) -> str:
        text = format_plain(handler, record)
        return text if handler in ours else masked_text(text)

    logging.Handler.format = format_masked  # type: ignore[method-assign, assignment]


def _followed_by(configure: Callable[..., Any], restore: Callable[[], None]) -> Callable[..., Any]:
    @wraps(configure)
    def configure_and_restore(*args: Any, **options: Any) -> Any:
        try:
            return configure(*args, **options)
        finally:
            restore()

    return configure_and_restore


def _without_disabling(configure: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `configure` so that it does not disable loggers that it does not name."""

    @wraps(configure)
    def configure_and_enable(*args: Any, **options: Any) -> Any:
        known = [logger for logger in logging.Logger.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
        enabled = [logger for logger in known if not logger.disabled]
        try:
            return configure(*args, **options)
        finally:
            for logger in enabled:
                logger.disabled = False

    return configure_and_enable
