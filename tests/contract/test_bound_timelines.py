"""The timeline as a caller with bounds sees it: the events of other users do not exist."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.errors import PermissionDeniedError, RequestIdReusedError
from mnemon_server.domain.events import EventSelection
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.bound.events import BoundEvents
from mnemon_server.engines.promises.vault import Vault

from tests.contract.timeline_suite import ALL, append, happening, try_append
from tests.contract.vault_suite import START, ManualClock, key
from tests.support.interference import histories
from tests.support.server import WAIT_S, wait_until
from tests.support.vaults import temporary_vault

USERS = ("ada", "bob", "")


@pytest.fixture
def vault() -> Iterator[Vault]:
    with temporary_vault(ManualClock()) as opened:
        assert opened.events.wait_until_warm(WAIT_S)
        append(opened.events, *(happening(f"of {user}", user=user) for user in USERS))
        yield opened


users, words = st.sampled_from(["ada", "bob"]), st.sampled_from(["window", "train", "seat"])
steps = st.lists(st.tuples(users, st.integers(0, 5), words, st.integers(0, 3)), max_size=12)


@histories(40)
@given(steps)
def test_what_others_record_changes_nothing_that_a_caller_is_told(steps: list[tuple[str, int, str, int]]) -> None:
    clock = ManualClock()
    with temporary_vault(clock) as alone, temporary_vault(clock) as shared:
        assert alone.events.wait_until_warm(WAIT_S)
        assert shared.events.wait_until_warm(WAIT_S)
        for user, number, word, hours in steps:
            event = happening(f"{user} {number}", START - timedelta(hours=hours), user=user, content=word)
            for vault in (alone, shared) if user == "ada" else (shared,):
                try_append(of(vault, user), [event], [key("the same", word.encode())])
        for vault in (alone, shared):
            wait_until(lambda vault=vault: is_searchable(vault))
        assert told(of(alone, "ada")) == told(of(shared, "ada"))


def is_searchable(vault: Vault) -> bool:
    return not vault.events.search_text("seat", None, vault.events.sequences(ALL), SearchMode.KEYWORD).pending


def told(timeline: BoundEvents) -> list[Any]:
    """Everything that the engine tells a caller, except for positions, which have gaps."""
    late = EventSelection(start=START - timedelta(hours=1))
    window, summary = timeline.window(ALL, limit=3), timeline.summarize(ALL)
    among = timeline.sequences(ALL)
    found = timeline.search_text("window seat", None, among, SearchMode.KEYWORD)
    return [
        [(event.position.event_id, event.body) for event in window.events],
        (window.total, window.next_position is None),
        [timeline.count(where) for where in (ALL, late)],
        summary,
        [event and event.body for event in timeline.get([f"{user} {n}" for user in ("ada", "bob") for n in range(6)])],
        [event.position.event_id for event in timeline.read(among)],
        sorted(round(float(score), 6) for score in found.relevance),
    ]


def of(vault: Vault, *users: str) -> BoundEvents:
    return BoundVault(vault, Bounds.of(users, ["shared"])).events


@pytest.mark.parametrize("users", [("ada",), ("bob",), ("ada", "bob"), ("*",), ("eve",)], ids=str)
def test_the_events_of_other_users_are_nowhere(vault: Vault, users: tuple[str, ...]) -> None:
    timeline, own = of(vault, *users), [user for user in USERS if user in users or "*" in users]
    ids = [f"of {user}" for user in own]
    found = timeline.get(["missing", *(f"of {user}" for user in USERS)])
    assert [event.position.event_id for event in found if event] == ids
    everything, tomorrow = vault.events.sequences(ALL), (START - EPOCH).days + 1
    assert [event.position.event_id for event in timeline.read(everything)] == ids
    if len(users) == 1:
        assert (timeline.count(ALL), timeline.summarize(ALL).event_count) == (len(own), len(own))
        window = timeline.window(ALL, limit=9)
        assert sorted(event.position.event_id for event in window.events) == sorted(ids)
        assert window.total == len(own)
        assert len(timeline.sequences(ALL)) == len(own)
        assert timeline.summarize(ALL, ZoneInfo("Pacific/Kiritimati")).days == (((tomorrow, len(own)),) if own else ())
    else:
        for call in (timeline.count, timeline.summarize, timeline.sequences):
            with pytest.raises(PermissionDeniedError, match=r"scope\.user must be 'ada' or 'bob'"):
                call(ALL)


def test_an_event_that_does_not_fit_is_left_out_and_one_of_others_takes_no_room(vault: Vault) -> None:
    asked: list[str] = []

    def fits(event_id: str, size: int) -> bool:
        asked.append(event_id)
        return False

    assert of(vault, "ada").get(["of bob", "of ada", "missing"], fits=fits) == [None, None, None]
    assert asked == ["of ada"]


def test_new_events_belong_to_the_user_and_request_ids_of_two_users_do_not_meet(vault: Vault) -> None:
    ada, bob = of(vault, "ada"), of(vault, "bob")
    [hers] = append(ada, happening("first", user=""), request=key("the same"))
    [his] = append(bob, happening("second", user="bob"), request=key("the same"))
    assert (hers.replayed, his.replayed, his.event_id) == (False, False, "second")
    [again] = append(ada, happening("first", user=""), request=key("the same"))
    assert again.replayed
    [event] = ada.get(["first"])
    assert event is not None
    assert bob.get(["first"]) == [None]
    [other] = try_append(ada, [happening("another", user="")], [key("the same", b"other")])
    assert isinstance(other, RequestIdReusedError)
    refused, done = try_append(ada, [happening("third", user="bob"), happening("fourth", user="ada")])
    assert isinstance(refused, PermissionDeniedError)
    assert not isinstance(done, Exception)
    assert bob.get(["third"]) == [None]
