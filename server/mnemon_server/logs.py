"""The log: one line per event on standard error, as JSON for programs or plain for people."""

import io
import logging
import sys
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog


class _StandardError(io.TextIOBase):
    """Standard error as it is at the moment. A log that nobody can read any more must not fail what is logged."""

    def write(self, text: str) -> int:
        """Writes where possible."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes where possible."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


_STANDARD_ERROR = cast("TextIO", _StandardError())


def configure_logging(*, log_format: str, level: str) -> None:
    """Sends the product's events, and the records of libraries from warnings upwards, to standard error."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering = _rendering(log_format)
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=_STANDARD_ERROR),
    )
    handler = logging.StreamHandler(_STANDARD_ERROR)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # The product's own modules may use the standard library as well.
    logging.getLogger("mnemon_server").setLevel(level.upper())


def leave_logs_to_the_program() -> None:
    """Hands the product's events to `logging`, unless the program has set up structlog itself."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _rendering(log_format: str) -> list[Any]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    # Plain tracebacks: the decorated ones print local variables, and with them what users stored.
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback, pad_event_to=0
        )
    ]
