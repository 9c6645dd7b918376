"""Days and times in the zone of a user: through the client, the command and the MCP server."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import mnemon
import pytest
import tzlocal
from mnemon import Client
from mnemon._mcp.identity import Identity

from tests.support.command import run, run_json
from tests.support.mcp_sessions import inner_session, text_of
from tests.support.server import server_process, wait_until

AUCKLAND, LOS_ANGELES = "Pacific/Auckland", "America/Los_Angeles"
LATE = datetime(2027, 1, 31, 10, 30, tzinfo=UTC)
"""Half past eleven in the evening in Auckland."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data")) as running:
        yield running.address()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


def fill(client: Client, user: str) -> None:
    """Calls at half past eleven in the evening in Auckland, and an hour later."""
    messages = [
        {"role": "user", "content": f"The {word} kettle is broken.", "message_time": LATE + timedelta(hours=hours)}
        for hours, word in enumerate(("red", "blue"))
    ]
    client.conversations.append("kitchen", messages, user=user)
    wait_until(lambda: not client.timeline.status().text_pending_count)


def days_in(context: str) -> list[str]:
    return re.findall(r"^\[\d\] (\d{4}-\d\d-\d\d) ", context, re.MULTILINE)


def test_a_message_before_midnight_is_of_the_day_that_its_user_calls_today(client: Client, user: str) -> None:
    fill(client, user)
    for zone, days in (
        (AUCKLAND, {"2027-01-31": 1, "2027-02-01": 1}),
        (LOS_ANGELES, {"2027-01-31": 2}),
        ("", {"2027-01-31": 2}),
    ):
        told = [day for day, count in days.items() for _ in range(count)]
        assert days_in(client.recall("Which kettle is broken?", user=user, time_zone=zone).context) == told
        context = client.conversations.context(
            "other", user=user, query="Which kettle is broken?", time_zone=zone.lower()
        )
        assert context.recall and days_in(context.recall.context) == told
        assert client.timeline.summarize(user=user, time_zone=zone).days == days
    arguments = {"query": "kettle", "kinds": ["event"], "filter": {"created_at": {"$lte": "2027-01-31"}}}
    output = client.tools.call("search_memory", arguments, config={"user_id": user}, time_zone=AUCKLAND)
    assert [each["created_at"] for each in json.loads(output.content)] == ["2027-01-31T23:30:00+13:00"]


def test_days_that_are_given_are_of_the_same_zone(client: Client, user: str) -> None:
    fill(client, user)
    for day in (date(2027, 2, 1), "2027-02-01"):
        summary = client.timeline.summarize(user=user, since=day, until=day, time_zone=AUCKLAND)
        assert summary.days == {"2027-02-01": 1}
        [item] = client.recall("kettle", user=user, since=day, until=day, time_zone=AUCKLAND)
        assert item.content == "The blue kettle is broken."
    assert client.timeline.summarize(user=user, until="9999-12-31", time_zone=LOS_ANGELES).event_count == 2
    with pytest.raises(mnemon.InvalidArgumentError, match=r"^since: .* does not exist here"):
        client.timeline.summarize(since="2027-03-28T02:30", time_zone="Europe/Berlin")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "+02:00", " ", "../etc/passwd", "localtime"])
def test_what_is_no_zone_is_refused_with_an_example(client: Client, zone: str) -> None:
    for call in (
        lambda: client.recall("kettle", time_zone=zone),
        lambda: client.conversations.context("c", user="ada", time_zone=zone),
        lambda: client.timeline.summarize(time_zone=zone),
        lambda: client.tools.call("search_memory", {"query": "q"}, config={"user_id": "ada"}, time_zone=zone),
    ):
        with pytest.raises(mnemon.InvalidArgumentError, match=r'time_zone: .* such as "Europe/Berlin"') as caught:
            call()
        assert caught.value.violations[0].field.endswith("time_zone")


async def test_a_model_reads_and_says_days_of_the_zone_of_its_mcp_server(
    address: str, client: Client, user: str
) -> None:
    fill(client, user)
    async with inner_session(address, Identity(user=user, time_zone=AUCKLAND)) as tools:

        async def told(tool: str, **arguments: Any) -> str:
            return text_of(await tools.call_tool(tool, arguments))

        assert days_in(await told("recall", query="kettle")) == ["2027-01-31", "2027-02-01"]
        [event] = json.loads(await told("query_timeline", since="2027-02-01", until="2027-02-01"))
        assert event["event_time"] == "2027-02-01T00:30:00+13:00"
        turns = json.loads(await told("read_conversation", conversation="kitchen"))
        assert [turn["time"] for turn in turns] == ["2027-02-01T00:30:00+13:00", "2027-01-31T23:30:00+13:00"]
        [event, _] = json.loads(await told("search_memory", query="red kettle", kinds=["event"]))
        assert event["created_at"] == "2027-01-31T23:30:00+13:00"


@pytest.fixture
def in_auckland(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in Auckland."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", AUCKLAND)
        time.tzset()
        tzlocal.reload_localzone()
        yield
    time.tzset()
    tzlocal.reload_localzone()


@pytest.mark.usefixtures("in_auckland")
def test_the_command_is_in_the_zone_of_the_machine_or_another(address: str, client: Client, user: str) -> None:
    fill(client, user)
    whose = ("--user", user)
    for zone, name, days in (
        ((), AUCKLAND, ["2027-01-31", "2027-02-01"]),
        (("--time-zone", LOS_ANGELES.lower()), LOS_ANGELES, ["2027-01-31", "2027-01-31"]),
    ):
        assert list(run_json(address, *zone, "summary", *whose)[0]["days"]) == sorted({*days})
        assert f"by day in {name}" in run(address, *zone, "summary", *whose).stdout
        assert days_in(run(address, *zone, "recall", "kettle", *whose, "--context").stdout) == days
        assert (
            days_in(
                run_json(address, *zone, "chat", "context", "new", *whose, "--query", "kettle")[0]["recall"]["context"]
            )
            == days
        )
        shown = run(address, *zone, "chat", "show", "kitchen", *whose).stdout
        assert re.findall(r"user  (\d{4}-\d\d-\d\d)", shown) == days
        on_day = run_json(address, *zone, "timeline", "--since", "2027-02-01", "--until", "2027-02-01", *whose)
        assert len(on_day) == days.count("2027-02-01")
    refused = run(address, "--time-zone", "Mars/Olympus", "summary")
    assert refused.returncode == 2 and 'such as "Europe/Berlin"' in refused.stderr
    assert "before the command: mnemon --time-zone" in run(address, "recall", "tea", "--time-zone", "CET").stderr
