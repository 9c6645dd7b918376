"""Where records come from: told by their writers, kept and filtered with every kind, and no part of their identity."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mnemon import Client, F, InvalidArgumentError, Scope, SemanticMemory, create_search_memory_tool
from mnemon_server.domain.origins import Origin

from tests.support.command import run
from tests.support.server import server_process

TEXT = "The house key lies under the mat."
PLACE = ("origins",)
WRITERS = ("", *map(str, Origin))
FIELDS = r"must be one of 'user', 'agent', 'tool', 'import', 'web'"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("data")
    with server_process(folder, "--knowledge-store-backend", "local") as running, Client(running.address()) as found:
        yield found


class Kind(NamedTuple):
    """Stores a text with an origin for a user, under a name; and returns the scopes of what a search finds."""

    store: Callable[..., Any]
    found: Callable[..., list[Scope]]


def _put_document(client: Client, user: str, name: str, **origin: str) -> None:
    client.documents.put(f"{user}-{name}", TEXT, {"label": name}, scope=Scope(user=user, **origin))


def _documents(client: Client, user: str, *, min_trust: str | None = None, **origin: str) -> list[Scope]:
    scope = Scope(user=user, **origin)
    answer = client.documents.search(TEXT, limit=50, scope=scope, min_trust=min_trust)
    return [each.document.scope for each in answer]


def _fact_scopes(client: Client, user: str, **asked: Any) -> list[Scope]:
    found = client.facts.search(TEXT, namespace=(*PLACE, user), limit=50, **asked)
    return [Scope(origin=each.fact.origin, origin_name=each.fact.origin_name) for each in found]


def _put_fact(client: Client, user: str, name: str, **origin: str) -> None:
    client.facts.put((*PLACE, user), name, {"content": TEXT}, **origin)


def _facts(client: Client, user: str, *, min_trust: str | None = None, **origin: str) -> list[Scope]:
    where = None if not origin else F("origin") == origin["origin"]
    return _fact_scopes(client, user, where=where, min_trust=min_trust)


def _add_memory(client: Client, user: str, name: str, **origin: str) -> None:
    client.memories.add(TEXT, user=user, type=name or "unset", **origin)


def _memories(client: Client, user: str, **asked: str) -> list[Scope]:
    return [each.memory.scope for each in client.memories.search(TEXT, limit=50, user=user, **asked)]


def _add_statement(client: Client, user: str, name: str, **origin: str) -> None:
    # The same text would be a duplicate, so each origin gets a separate persona.
    client.semantic.add(TEXT, user=user, persona=name, **origin)


def _statements(client: Client, user: str, **asked: str) -> list[Scope]:
    return [each.memory.scope for each in client.semantic.search(TEXT, limit=50, user=user, **asked).results]


def _add_event(client: Client, user: str, name: str, **origin: str) -> None:
    client.timeline.add("note", TEXT, user=user, conversation=f"c-{name}", **origin)


def _events(client: Client, user: str, **asked: str) -> list[Scope]:
    return [each.scope for each in client.timeline.search(TEXT, limit=50, user=user, **asked).events]


KINDS = {
    "documents": Kind(_put_document, _documents),
    "facts": Kind(_put_fact, _facts),
    "memories": Kind(_add_memory, _memories),
    "statements": Kind(_add_statement, _statements),
    "events": Kind(_add_event, _events),
}


def given(scope: Scope) -> dict[str, str]:
    """The scope as keyword arguments."""
    return {name: text for name, text in scope.to_dict().items() if text}


def origins(scopes: list[Scope]) -> list[str]:
    return sorted(each.origin for each in scopes)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def user(client: Client, kind: str, request: pytest.FixtureRequest) -> str:
    """A user with the same text from everywhere."""
    name = str(request.node.name)
    for origin in WRITERS:
        given = {"origin": origin, "origin_name": f"{origin}.example"} if origin else {}
        KINDS[kind].store(client, name, origin, **given)
    return name


def test_a_record_keeps_the_origin_that_its_writer_named(client: Client, kind: str, user: str) -> None:
    found = KINDS[kind].found(client, user)
    assert {each.origin: each.origin_name for each in found} == {
        origin: f"{origin}.example" if origin else "" for origin in WRITERS
    }


def test_a_search_finds_what_has_an_origin(client: Client, kind: str, user: str) -> None:
    assert origins(KINDS[kind].found(client, user, origin="web")) == ["web"]


@pytest.mark.parametrize("least", Origin)
def test_min_trust_leaves_out_what_is_trusted_less(client: Client, kind: str, user: str, least: Origin) -> None:
    kept = [str(each) for each in list(Origin)[: list(Origin).index(least) + 1]]
    unsaid = [] if least is Origin.USER else [""]
    assert origins(KINDS[kind].found(client, user, min_trust=str(least))) == sorted([*kept, *unsaid])
    recalled = client.recall(TEXT, user=user, namespace=(*PLACE, user), min_trust=str(least))
    told = [each.scope.origin for each in recalled]
    assert told
    assert {*told} <= {*kept, *unsaid}


def test_an_unknown_origin_and_a_name_without_one_are_refused(client: Client, kind: str) -> None:
    for given, field in (({"origin": "press"}, "origin"), ({"origin_name": "example.com"}, "origin_name")):
        with pytest.raises(InvalidArgumentError, match=FIELDS) as caught:
            KINDS[kind].store(client, "other", "x", **given)
        [violation] = caught.value.violations
        assert violation.field.endswith(f".{field}")
    assert KINDS[kind].found(client, "other") == []


def test_an_unknown_min_trust_is_refused(client: Client, kind: str) -> None:
    with pytest.raises(InvalidArgumentError, match=FIELDS):
        KINDS[kind].found(client, "ada", min_trust="press")
    with pytest.raises(InvalidArgumentError, match=FIELDS):
        client.recall(TEXT, min_trust="press")


def test_the_same_statement_or_event_from_another_origin_is_a_duplicate(client: Client) -> None:
    first = client.semantic.add(TEXT, user="same", origin="user")
    again = client.semantic.add(TEXT, user="same", origin="web", origin_name="example.com")
    assert (again.duplicate, again.memory_id) == (True, first.memory_id)
    assert again.memory is not None and again.memory.origin == "user"
    when = client.timeline.add("note", TEXT, user="same", origin="user")
    stored = client.timeline.get(when.event_id)
    repeated = client.timeline.add("note", TEXT, user="same", event_time=stored.event_time, origin="web")
    assert repeated.duplicate_of == stored


def test_messages_say_by_their_roles_where_they_come_from_and_stay_one_conversation(client: Client) -> None:
    turns = [
        {"role": "user", "content": "Where is my key?"},
        {"role": "assistant", "content": "I look it up."},
        {"role": "tool", "content": TEXT, "name": "search"},
        {"role": "system", "content": "Answer briefly."},
    ]
    client.conversations.append("c1", turns, user="talker")
    client.conversations.append("c1", [{"role": "user", "content": TEXT}], user="talker", origin="web")
    events = list(client.timeline.list(user="talker"))
    told = {(each.content, each.scope.origin, each.scope.origin_name) for each in events}
    assert told == {
        ("Where is my key?", "user", ""),
        ("I look it up.", "agent", ""),
        (TEXT, "tool", "search"),
        ("Answer briefly.", "", ""),
        (TEXT, "web", ""),
    }
    [conversation] = client.conversations.list(user="talker")
    assert conversation.message_count == 5
    assert len(list(client.conversations.messages("c1", user="talker"))) == 5


def test_the_turns_beside_a_message_are_trusted_as_far(client: Client) -> None:
    said = [
        ({"role": "user", "content": "Where is the blue key kept?"}, "user"),
        ({"role": "assistant", "content": "Mallory keeps it."}, "web"),
        ({"role": "assistant", "content": "In the drawer of the desk."}, ""),
    ]
    for turn, origin in said:
        client.conversations.append("keys", [turn], user="asker", **({"origin": origin} if origin else {}))
    asked: dict[str, Any] = {"query": "Where is the blue key kept?", "user": "asker"}
    everything = client.recall(**asked).context
    assert "Mallory" in everything
    assert "drawer" in everything
    trusted = client.recall(**asked, min_trust="agent").context
    assert "Mallory" not in trusted
    assert "drawer" in trusted
    for least, told in ((None, True), ("agent", False)):
        found = client.conversations.context("other", **asked, min_trust=least).recall
        assert found is not None
        assert ("Mallory" in found.context) is told


def test_a_merged_statement_is_trusted_as_the_less_trusted_of_both(client: Client) -> None:
    said = client.semantic.add("Ada lives in Berlin now.", user="merged", persona="coach", origin="user")
    read = SemanticMemory("Ada lives in Berlin, by the river.", user="merged", persona="coach", origin="web")
    found = client.semantic.add(read.content, **given(read.scope), origin_name="x.example")
    for both in ((said, found), (found, said)):
        merged = client.conflicts.merge(*(each.memory_id for each in both), dry_run=True)
        assert merged.memory.scope == Scope("merged", persona="coach", origin="web", origin_name="x.example")


@pytest.mark.parametrize(("first", "second"), [("user", "web"), ("", "tool"), ("tool", "import"), ("agent", "web")])
def test_a_less_trusted_statement_stands_beside_the_one_that_it_contradicts(
    client: Client, first: str, second: str
) -> None:
    user = f"beside-{first}-{second}"
    known = client.semantic.add("Ada lives in Berlin now.", user=user, importance=0.1, origin=first)
    answer = client.semantic.add(
        "Ada lives in Munich now.", user=user, importance=0.9, origin=second, conflict_policy="resolve"
    )
    assert answer.decision is None
    assert [each.memory_id for each in answer.conflicts] == [known.memory_id]
    assert {each.content for each in client.semantic.list(user=user)} == {
        "Ada lives in Berlin now.",
        "Ada lives in Munich now.",
    }
    # The other way round, it is settled: an agent speaks for its user.
    client.semantic.add("Ada lives in Rome now.", user=user, importance=1.0, origin="agent", conflict_policy="resolve")
    assert "Ada lives in Rome now." in {each.content for each in client.semantic.list(user=user)}
    assert len(list(client.semantic.list(user=user))) == 2


def test_a_rule_applies_to_statements_of_its_origins(client: Client) -> None:
    client.rules.add({"name": "of the web", "priority": 9, "conditions": {"origins": ["web", "agent"]}})
    found = {
        origin: client.rules.match(SemanticMemory(TEXT, user="ruled", origin=origin))["name"] for origin in WRITERS
    }
    client.rules.delete("of the web")
    matched = {origin for origin, rule in found.items() if rule == "of the web"}
    assert matched == {"", "agent", "web"}
    with pytest.raises(InvalidArgumentError, match="user, agent, tool, import, web"):
        client.rules.add({"name": "wrong", "conditions": {"origins": ["press"]}})


def test_a_changed_fact_names_its_origin_among_the_changes(client: Client) -> None:
    for origin in ("user", "web"):
        client.facts.put(PLACE, "moved", {"content": TEXT}, origin=origin)
    [change] = client.changes.list(types=["memory:fact:updated"], scope=Scope(origin="web"))
    assert change.changed_fields == ("origin",)
    assert change.scope == Scope(origin="web")


def test_an_archive_brings_origins_and_refuses_unknown_ones(client: Client, kind: str, user: str) -> None:
    lines = list(client.archive.export())
    mine = [line for line in lines[1:-1] if "web.example" in str(line) and (user in str(line) or kind == "facts")]
    assert mine
    wrong = json.loads(json.dumps(mine).replace('"web"', '"press"'))
    for result in client.archive.import_([lines[0], *wrong, lines[-1]], on_conflict="replace"):
        assert result.error is not None
        assert "'user', 'agent', 'tool', 'import', 'web'" in str(result.error)
    assert origins(KINDS[kind].found(client, user)) == sorted(WRITERS)


def test_the_command_stores_and_filters_by_origin(client: Client, tmp_path: Path) -> None:
    address = client.address
    for origin in ("user", "web"):
        done = run(address, "remember", f"{origin} says hello", "--user", "cli", "--origin", origin)
        assert (done.returncode, done.stderr) == (0, "")
    found = run(address, "recall", "hello", "--user", "cli", "--min-trust", "agent", "--json")
    assert found.returncode == 0
    assert "user says hello" in found.stdout
    assert "web says hello" not in found.stdout


def test_a_page_that_repeats_the_user_does_not_take_the_users_words_over(client: Client) -> None:
    said = client.remember(TEXT, type="note", user="tom", origin="user")
    copied = client.remember(TEXT, type="note", user="tom", origin="web", origin_name="evil.example")
    [item] = client.recall(TEXT, user="tom")
    assert (item.record.id, item.scope.origin) == (said.memory_id, "user")
    assert [each.id for each in item.duplicates] == [copied.memory_id]
    assert "web" not in client.recall(TEXT, user="tom").context


def test_an_application_keeps_what_a_page_said_from_the_search_of_a_model(client: Client) -> None:
    config, place = {"user_id": "tess"}, ("user", "tess")
    for origin in ("user", "web"):
        client.facts.put(place, origin, {"content": TEXT}, origin=origin)
        client.documents.put(f"tess-{origin}", f"{TEXT} Says the {origin}.", scope=Scope("tess", origin=origin))
    search, trusting = (create_search_memory_tool(store=client, min_trust=least) for least in ("agent", None))

    def keys(text: str) -> set[str]:
        return {each.get("key") or each["id"] for each in json.loads(text)}

    assert keys(trusting(TEXT, config=config)) == {"user", "web"}
    assert keys(search(TEXT, config=config)) == {"user"}
    kinds = ["fact", "document"]
    assert keys(trusting(TEXT, kinds=kinds, config=config)) == {"user", "tess-user", "tess-web"}
    assert keys(search(TEXT, kinds=kinds, config=config)) == {"user", "tess-user"}
    call = f'[[ABP_TOOL:search_memory]]{{"query": "{TEXT}"}}[[END_ABP_TOOL]]'
    [result] = client.tools.execute(call, config=config, min_trust="agent").results
    assert result.output is not None and keys(result.output.content) == {"user"}
    with pytest.raises(InvalidArgumentError, match=f"context.min_trust: {FIELDS}"):
        client.tools.call("search_memory", {"query": TEXT}, config=config, min_trust="nobody")
