"""The log: an event is always one line, and a terminal cannot be manipulated."""

import json
import logging

import pytest
import structlog
from mnemon_server.logs import configure_logging

HOSTILE = "a\x1b[31mb\nrpc method=/forged\r\x07\x9b1m\u2028\u202egnp\u2066\ud800"
SHOWN = "a\\x1b[31mb\\nrpc method=/forged\\r\\x07\\x9b1m\\u2028\\u202egnp\\u2066\\ud800"
UNSAFE = set(HOSTILE) - set("a[31mb\nrpc method=/forgedgnp")
FORMATS = pytest.mark.parametrize("log_format", ["console", "json"])


@FORMATS
def test_an_event_is_one_line_whatever_it_holds(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format=log_format, level="info")
    structlog.get_logger().info(HOSTILE, method=HOSTILE, names=[HOSTILE], by={HOSTILE: 1}, error=ValueError(HOSTILE))
    logging.getLogger("other.package").warning("it said %s", HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert not UNSAFE & set("".join(lines))
    if log_format == "json":
        event, library = map(json.loads, lines)
        assert (event["event"], event["method"], event["names"], event["by"]) == (SHOWN, SHOWN, [SHOWN], {SHOWN: 1})
        assert library["event"] == f"it said {SHOWN}"
    else:
        assert SHOWN in lines[0]
        assert f"it said {SHOWN}" in lines[1]


@FORMATS
def test_only_a_traceback_keeps_its_lines(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format=log_format, level="info")
    try:
        raise ValueError("one\x1b[2J\n\ttwo\x85")
    except ValueError as error:
        structlog.get_logger().error("incident", exc_info=error)
        logging.getLogger("other.package").exception("failed")
    log = capsys.readouterr().err
    assert not {"\x1b", "\x85"} & set(log)
    texts = [json.loads(line)["exception"] for line in log.splitlines()] if log_format == "json" else [log]
    for text in texts:
        assert "Traceback (most recent call last):\n" in text
        assert "ValueError: one\\x1b[2J\n\ttwo\\x85" in text


@FORMATS
def test_text_in_any_language_stays_readable(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format=log_format, level="info")
    structlog.get_logger().info("Grüße 東京 😀 שלום")
    assert "Grüße 東京 😀 שלום" in capsys.readouterr().err
