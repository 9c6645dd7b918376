"""The page for whoever writes a client says what the code does."""

import json
import re

import pytest
from mnemon import _channel
from mnemon_server.config.settings import Settings
from mnemon_server.domain.validation import REQUEST_ID_BYTES_MAX
from mnemon_server.engines.sqlite.requests import LIFETIME_US
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX
from mnemon_server.services.reading.pages import PAGE_BYTES_MAX
from mnemon_server.transport import options
from mnemon_server.transport.http.connection import KEEP_ALIVE_S
from mnemon_server.transport.http.intake import JSON_BYTES_MAX
from mnemon_server.transport.http.json_request import VALUES_MAX

from tests.support.repository import ROOT

PAGE = (ROOT / "protos/CLIENTS.md").read_text("utf-8")
ROWS = re.findall(r"^\| [^|]+ \| ([\d,]+)[^|]* \| `(\w+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("default", "setting"), ROWS, ids=str)
def test_a_limit_has_the_default_of_its_setting(default: str, setting: str) -> None:
    assert float(default.replace(",", "")) == getattr(Settings(), setting)


def test_every_setting_on_the_page_exists() -> None:
    assert len(ROWS) >= 6
    named = set(re.findall(r"`(\w+_(?:s|max|mib))`", PAGE))
    assert {name for name in named if not hasattr(Settings(), name)} == set()


def test_every_reason_on_the_page_has_its_status_and_can_be_repeated_as_it_says() -> None:
    published = {
        each["reason"]: each for each in json.loads((ROOT / "protos/errors.json").read_text("utf-8"))["errors"]
    }
    named = {reason: code for code, reason in re.findall(r"\b([A-Z_]+) \(([A-Z_]+)\)", PAGE)}
    assert len(named) >= 9
    assert named == {reason: published[reason]["code"] for reason in named}
    another_step = {"REVISION_MISMATCH", "REQUEST_ID_REUSED", "CURSOR_EXPIRED", "INVALID_CURSOR", "INVALID_PAGE_TOKEN"}
    assert {reason for reason in named if not published[reason]["retry"]} >= another_step
    assert all(published[reason]["retry"] for reason in ("NOT_SERVING", "TOO_MANY_REQUESTS", "SLOW_READER"))


def test_the_figures_are_those_of_the_code() -> None:
    settings = Settings()
    config = json.loads((ROOT / "protos/service_config.json").read_text("utf-8"))
    retry = next(each["retryPolicy"] for each in config["methodConfig"] if "retryPolicy" in each)
    channel = dict(_channel.CHANNEL_OPTIONS)
    first_ms, most_ms = (channel[f"grpc.{each}_reconnect_backoff_ms"] for each in ("initial", "max"))
    ping_s, timeout_s = options.KEEPALIVE_TIME_MS // 1000, options.KEEPALIVE_TIMEOUT_MS // 1000
    told = (
        f"at most {REQUEST_ID_BYTES_MAX} bytes",
        f"{config['retryThrottling']['maxTokens'] // 2} more failures than successes",
        f"| {JSON_BYTES_MAX >> 20} MiB, {VALUES_MAX:,} values |",
        f"| {options.METADATA_BYTES_MAX >> 10} KiB |",
        f"| streams of one gRPC connection | {options.STREAMS_PER_CONNECTION_MAX} |",
        f"idle for {KEEP_ALIVE_S} s",
        f"a ping every {ping_s} s with a timeout of {timeout_s} s",
        f"ping every {options.MIN_PING_INTERVAL_MS // 1000} s or less often",
        f"one of {settings.default_deadline_s:.0f} s (`default_deadline_s`)",
        f"`watch_heartbeat_s`, {settings.watch_heartbeat_s:.0f} s by default",
        f"`shutdown_grace_s` ({settings.shutdown_grace_s:.0f} s)",
        f"sets {first_ms / 1000} s to {most_ms // 1000} s",
        f"{retry['initialBackoff'].removesuffix('s')} s,\ndoubled up to {retry['maxBackoff'].removesuffix('s')} s",
    )
    assert [each for each in told if each not in PAGE] == []
    assert {each["timeout"] for each in config["methodConfig"]} == {"60s", "600s"}
    assert (LIFETIME_US, ANSWER_BYTES_MAX, PAGE_BYTES_MAX) == (24 * 3600 * 1_000_000, 3 << 20, 3 << 20)
    assert (retry["maxAttempts"], options.CONNECTION_AGE_S, options.CONNECTION_AGE_GRACE_MS) == (4, 3_600, 1_800_000)
    assert retry["retryableStatusCodes"] == ["UNAVAILABLE", "CANCELLED"]
