"""The log: one line per event on standard error, as JSON for programs or as plain text for people.

An event may contain text from a client, a library or a model. Characters that could move a terminal's cursor, change
its colours or start a new line are written as escapes such as `\\x1b`. Only this module does that.
"""

import io
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from mnemon_server.transport.interceptors.base import current_call


class _StandardError(io.TextIOBase):
    """The current standard error. A closed one must not cause errors in the code that logs."""

    def write(self, text: str) -> int:
        """Writes if possible."""
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes if possible."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


# Control characters, Unicode line ends, characters that change text direction, and unpaired surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_UNSAFE_IN_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_QUOTED = re.compile("[ \t=\r\n\"']")
_SEVERAL_LINES = frozenset({"exception", "stack"})
_STANDARD_ERROR = cast("TextIO", _StandardError())


def configure_logging(*, log_format: str, level: str) -> None:
    """Sends the product's events, and libraries' records from level warning, to standard error."""
    shared: list[Any] = [
        _with_request_id,
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
    # gRPC treats a client that disconnects before its answer as an error.
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_of_no_left_call)
    # The product's own modules may use the standard library as well.
    logging.getLogger("mnemon_server").setLevel(level.upper())


def _is_of_no_left_call(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("ExecuteBatchError raised")


def leave_logs_to_the_program() -> None:
    """Sends the product's events to `logging`, unless the program has configured structlog itself."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _with_request_id,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _with_request_id(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Adds the id of the call in progress. Binding it as a context variable would cost more per call."""
    call = current_call.get(None)
    return event if call is None else {"request_id": call.request_id, **event}


def _rendering(log_format: str) -> list[Any]:
    # Plain tracebacks, because the decorated ones print local variables, which may hold user data.
    before = [structlog.processors.format_exc_info, _escaped]
    if log_format == "json":
        return [*before, structlog.processors.JSONRenderer(ensure_ascii=False)]
    traceback = structlog.dev.plain_traceback
    if sys.stderr.isatty():
        return [*before, structlog.dev.ConsoleRenderer(exception_formatter=traceback, pad_event_to=0)]
    return [*before, structlog.dev.ConsoleRenderer(exception_formatter=traceback, columns=_plain_columns())]


def _plain_columns() -> list[structlog.dev.Column]:
    """The columns of a line without colours. The library's own take as long as all other work for a line."""

    def plain(key: str, value: object) -> str:
        return f"{key}={value if isinstance(value, str) and not _QUOTED.search(value) else repr(value)}"

    return [
        structlog.dev.Column("", plain),
        structlog.dev.Column("timestamp", lambda _, time: str(time)),
        structlog.dev.Column("level", lambda _, level: f"[{level:9}]"),
        structlog.dev.Column("event", lambda _, event: str(event)),
        structlog.dev.Column("logger", lambda _, name: f"[{name}]"),
    ]


def _escaped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event with its texts escaped. A traceback keeps its line breaks."""
    for key, value in event.items():
        event[key] = _shown(value, _UNSAFE_IN_LINES if key in _SEVERAL_LINES else _UNSAFE)
    return event


def _shown(value: Any, unsafe: re.Pattern[str]) -> Any:
    match value:
        case str():
            # Every unsafe character is one that Python does not count as printable.
            return value if value.isprintable() else unsafe.sub(_escape, value)
        case int() | float():
            return value
        case Mapping():
            return {_shown(key, unsafe): _shown(item, unsafe) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_shown(item, unsafe) for item in value]
    return value


def _escape(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode("ascii")
