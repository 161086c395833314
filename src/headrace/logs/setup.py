"""Configure log lines and their destinations: the process's log, and the log of the trigger or run whose code is running.

structlog and the standard library's `logging` share one path: through `logging`, to the handlers of this module.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, MutableMapping, Sequence
from typing import Any, Final, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from headrace.logs.context import Finder, Target
from headrace.logs.format import encode, render_fields
from headrace.logs.writer import LogFiles

masks: Final[list[Processor]] = []
"""Processors that remove secrets from each line, as the last step before it is written."""

_process: Final[dict[str, Any]] = {}
_NOISY: Final = ("py4j", "httpx", "httpcore", "aiohttp.access", "asyncio", "watchfiles", "uvicorn.access")
"""Libraries whose INFO messages only help their own authors."""


def bind_process(**fields: Any) -> None:
    """Add these fields to all further lines of this process."""
    _process.update(fields)


def configure(level: int, handlers: Iterable[logging.Handler]) -> None:
    """Route structlog and `logging`, from `level` up, to these handlers only."""
    structlog.configure(**structlog_options(level, structlog.stdlib.LoggerFactory()))
    logging.basicConfig(level=level, handlers=list(handlers), force=True)
    quiet_libraries(level)


def structlog_options(level: int, factory: structlog.stdlib.LoggerFactory) -> dict[str, Any]:
    """Return arguments of `structlog.configure` that send lines from `level` up to the loggers of `factory`."""
    return {
        "processors": [structlog.contextvars.merge_contextvars, *_common(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        "wrapper_class": structlog.make_filtering_bound_logger(level),
        "context_class": dict,
        "logger_factory": factory,
        "cache_logger_on_first_use": True,
    }


def quiet_libraries(level: int) -> None:
    """Raise the level of libraries that log too much at INFO to WARNING."""
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def process_handler(stream: TextIO, *, as_json: bool, colours: bool, finders: Sequence[Finder] = ()) -> logging.Handler:
    """Return the handler of the process's log: all lines of structlog, and warnings and errors of other libraries.

    Lines of a trigger or a run that one of `finders` finds have the same fields as in its own log.
    """
    handler = logging.StreamHandler(stream)
    handler.addFilter(lambda record: record.levelno >= logging.WARNING or isinstance(record.msg, dict))
    handler.setFormatter(_formatter(_target_fields(finders), _json if as_json else _text(colours=colours)))
    return handler


class TargetHandler(logging.Handler):
    """Writes lines to the log of the running trigger or run. Outside such code, it costs one lookup of a context variable."""

    def __init__(self, files: LogFiles, finders: Iterable[Finder]) -> None:
        super().__init__()
        self._files = files
        self._finders = list(finders)
        self.setFormatter(_formatter(_target_fields(self._finders), _json))

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if a trigger's or a run's code is running."""
        target = _find_target(self._finders)
        if target is not None:
            self._files.append(target.name, self.format(record).encode(errors="backslashreplace") + b"\n")

    def close(self) -> None:
        """Close the files."""
        self._files.close()
        super().close()


def _find_target(finders: Iterable[Finder]) -> Target | None:
    return next((target for find in finders if (target := find()) is not None), None)


def _target_fields(finders: Sequence[Finder]) -> Processor:
    def bearing(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
        del logger, name
        target = _find_target(finders)
        if target is None:
            return event
        return {**event, **{name: value for name, value in target.defaults.items() if name not in event}, **target.fields}

    return bearing


def _common() -> list[Processor]:
    return [
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _formatter(*last: Processor) -> logging.Formatter:
    """Return a formatter. `last` are its last processors, the last of which returns the line."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_common(), structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _with_process,
            *last[:-1],
            _masked,
            last[-1],
        ],
    )


def _with_process(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    del logger, name
    return {**_process, **event}


def masked_text(text: str) -> str:
    """Return `text` without secrets."""
    return str(_masked(None, "", {"text": text})["text"])


def _masked(logger: WrappedLogger, name: str, event: EventDict) -> EventDict:
    masked: Any = event
    for mask in masks:
        masked = mask(logger, name, masked)
    return dict(masked)


def _json(logger: WrappedLogger, name: str, event: MutableMapping[str, Any]) -> str:
    del logger, name
    return encode(event)


def _text(*, colours: bool) -> Processor:
    def text(logger: WrappedLogger, name: str, event: MutableMapping[str, Any]) -> str:
        del logger, name
        return render_fields(event, colours=colours)

    return text
