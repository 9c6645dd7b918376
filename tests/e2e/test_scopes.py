"""Users, households and personas who save the same: each has a record of their own, and conflicts stay among it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any, NamedTuple

import pytest
from mnemon import Client, EpisodicEvent, EventExistsError, InvalidArgumentError, Scope, SemanticMemory

from tests.support.server import WAIT_S, server_process

TEXT = "The house key lies under the mat."
BERLIN, MUNICH = "Ada lives in Berlin now.", "Ada lives in Munich now."
LINK_KEY = "episodic_event_ids"
WHEN = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("data")
    with server_process(folder, "--knowledge-store-backend", "local") as running, Client(running.address()) as found:
        yield found


def scopes_of(test: str) -> list[Scope]:
    """Two users of a test, each with and without two households and two personas."""
    users = (f"ada of {test}", f"bob of {test}")
    return [Scope(*each) for each in product(users, ("", "alpha", "beta"), ("", "coach", "cook"))]


def given(scope: Scope) -> dict[str, str]:
    """The scope as keyword arguments."""
    return {name: text for name, text in scope.to_dict().items() if text}


def is_within(scope: Scope, asked: Scope) -> bool:
    """Whether a search in the scope `asked` shows a record of `scope`."""
    return all(getattr(scope, name) == text for name, text in given(asked).items())


def label_of(scope: Scope) -> str:
    return f"{scope.user}/{scope.household}/{scope.persona}"


class Kind(NamedTuple):
    """Writes the text in a scope, with its label; and returns scopes and labels of what a search in the scope finds."""

    write: Callable[[Client, Scope, str], Any]
    found: Callable[[Client, Scope], list[tuple[Scope, Any]]]


def statements(client: Client, scope: Scope) -> list[tuple[Scope, Any]]:
    results = client.semantic.search(TEXT, limit=100, **given(scope)).results
    return [(each.memory.scope, each.memory.metadata.get("label")) for each in results]


def events(client: Client, scope: Scope) -> list[tuple[Scope, Any]]:
    found = client.timeline.search(TEXT, limit=100, **given(scope)).events
    return [(each.scope, each.metadata.get("label")) for each in found]


def statement(policy: str) -> Kind:
    def write(client: Client, scope: Scope, label: str) -> None:
        memory = SemanticMemory(TEXT, **given(scope), metadata={"label": label})
        assert not client.conflicts.preview(memory).duplicate
        answer = client.semantic.add(TEXT, **given(scope), metadata=memory.metadata, conflict_policy=policy)
        assert answer.memory is not None and answer.memory.metadata == memory.metadata
        assert (answer.duplicate, answer.conflicts, answer.decision) == (False, (), None)
        again = client.semantic.add(TEXT, **given(scope), conflict_policy=policy)
        assert (again.duplicate, again.memory_id) == (True, answer.memory_id)

    return Kind(write, statements)


def write_statements(client: Client, scope: Scope, label: str) -> None:
    items = [SemanticMemory(TEXT, **given(scope), metadata={"label": text}) for text in (label, "again")]
    assert [each.duplicate for each in client.semantic.add_many(items)] == [False, True]


def write_event(client: Client, scope: Scope, label: str) -> None:
    one, other = (
        client.timeline.add("note", TEXT, event_time=WHEN, **given(scope), metadata={"label": text})
        for text in (label, "again")
    )
    assert not one.duplicate
    assert other.duplicate_of is not None and other.duplicate_of.metadata == {"label": label}


def write_events(client: Client, scope: Scope, label: str) -> None:
    items = [EpisodicEvent("note", TEXT, event_time=WHEN, **given(scope), metadata={"label": label})] * 2
    receipts = [each.receipt for each in client.timeline.add_many(items)]
    assert [receipt and receipt.duplicate for receipt in receipts] == [False, True]


def import_event(client: Client, scope: Scope, label: str) -> None:
    event = {"scope": given(scope), "event_type": "note", "event_time": WHEN.isoformat(), "content": TEXT}
    line = {"kind": "event", "id": label, "event": event | {"metadata": {"label": label}}}
    results = client.archive.import_([{"mnemon_archive": 1}, line, {"summary": {"counts": {"event": 1}}}])
    assert [(each.outcome, each.error) for each in results] == [("created", None)]


def write_task(client: Client, scope: Scope, label: str) -> None:
    client.timeline.add("task", TEXT, event_time=WHEN, **given(scope), importance=0.9, event_id=label)


BRIDGED = "an event for the bridge"


def bridged(client: Client, scope: Scope) -> list[tuple[Scope, Any]]:
    """Waits for the statements that the bridge saves and links to their events."""
    awaited = {each for each in scopes_of(BRIDGED) if is_within(each, scope)}
    deadline = time.monotonic() + WAIT_S
    while True:
        results = client.semantic.search(TEXT, limit=100, **given(scope)).results
        if awaited <= {each.memory.scope for each in results}:
            return [(each.memory.scope, each.memory.metadata[LINK_KEY][0]) for each in results]
        assert time.monotonic() < deadline, scope


KINDS = {
    **{f"a statement, {policy}": statement(policy) for policy in ("ignore", "detect", "resolve")},
    "many statements": Kind(write_statements, statements),
    "an event": Kind(write_event, events),
    "many events": Kind(write_events, events),
    "an imported event": Kind(import_event, events),
    BRIDGED: Kind(write_task, bridged),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_same_text_of_another_user_household_or_persona_is_another_record(client: Client, name: str) -> None:
    scopes = scopes_of(name)
    for scope in scopes:
        KINDS[name].write(client, scope, label_of(scope))
    for asked in scopes:
        expected = [(scope, label_of(scope)) for scope in scopes if is_within(scope, asked)]
        assert sorted(KINDS[name].found(client, asked), key=repr) == sorted(expected, key=repr)


def test_conflicts_of_another_user_household_or_persona_are_neither_told_nor_decided(client: Client) -> None:
    scopes = scopes_of("conflicts")
    ids = {scope: client.semantic.add(BERLIN, **given(scope), importance=0.2).memory_id for scope in scopes}
    for scope, own in ids.items():
        candidate = SemanticMemory(MUNICH, **given(scope), importance=0.9)
        assert [each.memory_id for each in client.conflicts.detect(candidate).conflicts] == [own]
        previewed = client.conflicts.preview(candidate).decision
        answer = client.semantic.add(MUNICH, **given(scope), importance=0.9, conflict_policy="resolve")
        assert previewed is not None and answer.decision is not None
        assert previewed.existing_id == answer.decision.existing_id == own
        assert previewed.conflict_count == answer.decision.conflict_count == 1
    known = [memory for scope in scopes for memory in client.semantic.list(user=scope.user)]
    assert {(memory.scope, memory.content) for memory in known} == {(scope, MUNICH) for scope in scopes}


@pytest.mark.parametrize("field", ["user", "household", "persona"])
def test_statements_of_two_users_households_or_personas_are_not_merged(client: Client, field: str) -> None:
    mine = Scope(f"ada of merges {field}", "alpha", "coach")
    other = replace(mine, **{field: "other"})
    first, second, third = (
        client.semantic.add(text, **given(scope)).memory_id
        for text, scope in ((BERLIN, mine), (MUNICH, other), (MUNICH, mine))
    )
    unsaved = SemanticMemory(MUNICH, **given(other))
    refused = f"must belong to the same {field}"
    for dry_run in (True, False):
        with pytest.raises(InvalidArgumentError, match=refused):
            client.conflicts.merge(first, second, dry_run=dry_run)
    with pytest.raises(InvalidArgumentError, match=refused):
        client.conflicts.merge(SemanticMemory(BERLIN, **given(mine)), unsaved)
    for existing in (second, unsaved):
        with pytest.raises(InvalidArgumentError, match=refused):
            client.conflicts.arbitrate(first, existing)
    assert client.conflicts.merge(first, third).memory.scope == mine
    assert [memory.content for memory in client.semantic.list(**given(other))] == [MUNICH]


def test_the_event_id_of_another_user_is_refused_and_nothing_is_lost(client: Client) -> None:
    client.timeline.add("note", TEXT, user="ada of ids", event_time=WHEN, event_id="first", metadata={"of": "ada"})
    assert client.timeline.add("note", "other", user="ada of ids", household="alpha", event_id="first").duplicate
    with pytest.raises(EventExistsError, match="the event id 'first' is taken"):
        client.timeline.add("note", TEXT, user="bob of ids", event_time=WHEN, event_id="first")
    items = [EpisodicEvent("note", TEXT, user="bob of ids", event_id=name) for name in ("first", "second")]
    refused, stored = client.timeline.add_many(items)
    assert isinstance(refused.error, EventExistsError)
    assert stored.receipt is not None and not stored.receipt.duplicate
    assert [event.event_id for event in client.timeline.list(user="bob of ids")] == ["second"]
    assert [event.metadata for event in client.timeline.list(user="ada of ids")] == [{"of": "ada"}]
