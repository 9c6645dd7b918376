"""Recall over all kinds of records, through the doors of a real server."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from google.rpc import error_details_pb2
from mnemon import Client, F, RecallAnswer, RecordKind, Scope
from mnemon.v1 import archive_pb2, recall_pb2_grpc
from mnemon.v1 import recall_pb2 as pb

from tests.support.access import guarded_server, make_key
from tests.support.command import run, run_json
from tests.support.server import detail, server_process, wait_until, whole_server
from tests.support.tokenizers import write_tokenizer

KINDS = ["document", "memory", "fact", "semantic", "event"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data"), "--http-listen", "127.0.0.1:0") as running:
        yield running.address()


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address) as found:
        yield found


def fill(client: Client, user: str, noun: str = "kettle") -> dict[str, str]:
    """Stores a record of each kind; returns their ids by kind."""
    event = f"{user}-{noun}"
    ids = {
        "document": client.documents.put(event, f"The manual of the {noun}.", scope=Scope(user=user)).id,
        "memory": client.remember(f"The {noun} leaks.", user=user).memory_id,
        "fact": client.facts.put(("user", user), noun, {"content": f"The {noun} is red."}).key,
        "semantic": client.semantic.add(f"Ada owns a {noun}.", user=user, importance=0.5).memory.memory_id,
        "event": client.timeline.add("purchase", f"Ada bought a {noun}.", user=user, event_id=event).event_id,
    }
    wait_until(lambda: not client.timeline.status().text_pending_count)
    return ids


def found(answer: RecallAnswer) -> dict[str, str]:
    return {str(item.kind): item.id for item in answer}


def test_one_question_finds_all_kinds_in_one_order_with_a_text_for_a_prompt(client: Client, user: str) -> None:
    ids = fill(client, user)

    answer = client.recall("kettle", user=user)

    assert found(answer) == ids
    assert [item.score for item in answer] == sorted((item.score for item in answer), reverse=True)
    assert not answer.nothing_relevant and answer.best_relevance == answer[0].score
    assert sorted(item.citation for item in answer) == [1, 2, 3, 4, 5]
    assert f"[{answer[0].citation}] {datetime.now(UTC):%Y-%m-%d} {answer[0].content}" in answer.context.splitlines()
    assert 0 < answer.context_tokens <= 2_000 and answer.tokenizer == "utf8/4"
    assert [str(each.kind) for each in answer.diagnostics] == KINDS
    of_event = next(item for item in answer if item.kind is RecordKind.EVENT)
    assert (of_event.type, of_event.scope, of_event.record.namespace) == ("purchase", Scope(user=user), ())
    assert next(item for item in answer if item.kind == "fact").record.namespace == ("user", user)
    assert [item.importance for item in answer if item.kind == "semantic"] == [0.5]
    assert [item.confidence for item in answer if item.kind == "memory"] == [1.0]


def test_kinds_conditions_and_times_choose_records(client: Client, user: str) -> None:
    ids = fill(client, user)

    def kinds(**how: Any) -> set[str]:
        return set(found(client.recall("kettle", user=user, **how)))

    assert kinds(kinds=["fact", "event"]) == {"fact", "event"}
    assert kinds(filters={"event": F("event_type") == "sale", "memory": F("content").contains("leaks")}) == {*KINDS} - {
        "event"
    }
    assert kinds(namespace=("user", "other")) == {*KINDS} - {"fact"}
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert kinds(until=tomorrow) == {*KINDS} and kinds(since=tomorrow) == set()
    assert kinds(limit=2) <= {*KINDS} and len(client.recall("kettle", user=user, limit=2)) == 2
    vector = client.memories.search("kettle", user=user, view="full")[0].memory.embeddings[0]
    assert ids["memory"] in {item.id for item in client.recall(vector=vector, user=user)}


def test_kinds_have_the_names_that_people_use_and_an_error_lists_only_these(client: Client, user: str) -> None:
    ids = fill(client, user)

    for name in ("statement", "semantic"):
        assert found(client.recall("kettle", user=user, kinds=[name])) == {"semantic": ids["semantic"]}
    with pytest.raises(
        mnemon.InvalidArgumentError, match="'document', 'memory', 'fact', 'statement', 'event'"
    ) as raised:
        client.recall("kettle", user=user, kinds=["rule"])
    assert "decision" not in str(raised.value)


def test_records_of_another_user_are_not_recalled(client: Client, user: str) -> None:
    fill(client, f"{user}-other")

    answer = client.recall("kettle", user=user)

    assert (list(answer), answer.context, answer.nothing_relevant, answer.best_relevance) == ([], "", True, 0.0)


def test_facts_of_a_scope_that_has_no_namespace_are_left_out_and_the_answer_says_so(client: Client, user: str) -> None:
    fill(client, user)

    by_kind = {str(each.kind): each for each in client.recall("kettle", household="none").diagnostics}

    assert "name the namespace" in by_kind["fact"].skipped and by_kind["fact"].search is None
    assert by_kind["event"].search is not None and not by_kind["event"].skipped


def test_the_same_text_in_several_records_is_one_item(client: Client, user: str) -> None:
    text = "The bicycle is in the shed."
    memory = client.remember(text, user=user)
    statement = client.semantic.add(f"  {text.upper()}", user=user).memory
    client.facts.put(("user", user), "bicycle", {"content": text.removesuffix(".")})

    [item] = client.recall("Where is the bicycle?", user=user)

    records = [item.record, *item.duplicates]
    assert {(str(each.kind), each.id) for each in records} == {
        ("memory", memory.memory_id),
        ("semantic", statement.memory_id),
        ("fact", "bicycle"),
    }


def test_the_newest_turn_of_a_conversation_is_the_question(client: Client, user: str) -> None:
    fill(client, user, "kettle")
    fill(client, user, "bicycle")
    turns = [
        {"role": "user", "content": "Tell me about the kettle."},
        {"role": "assistant", "content": "It leaks.", "name": "helper"},
        {"role": "user", "content": "And the bicycle?"},
    ]

    answer = client.recall(messages=turns, user=user)

    parts = [{"role": "assistant", "content": None}, {"role": "user", "content": [{"type": "text", "text": "bicycle"}]}]
    assert "bicycle" in client.recall(messages=[*turns[:2], *parts], user=user)[0].content
    assert "bicycle" in answer[0].content
    assert answer[0].score > next(item.score for item in answer if "kettle" in item.content)


def say(client: Client, user: str, *turns: str, **about: Any) -> None:
    """Stores turns of an assistant, who speaks first, and a user."""
    messages = [{"role": ("assistant", "user")[number % 2], "content": text} for number, text in enumerate(turns)]
    client.conversations.append("c", messages, user=user, **about)


@pytest.mark.parametrize("question", ["Which blood type has Ada?", "What's your blood type?"])
def test_a_question_that_was_found_comes_with_its_answer(client: Client, user: str, question: str) -> None:
    say(client, user, "What's your blood type?", "A negative.", "Noted. And your shoe size?", "Forty one.")
    for number in range(20):
        client.timeline.add("note", f"The train number {number} was late.", user=user)
    answer = client.recall(question, user=user)
    assert not answer.nothing_relevant
    lines = answer.context.splitlines()
    [asked] = [number for number, line in enumerate(lines) if "What's your blood type?" in line]
    assert lines[asked + 1].endswith("user: A negative.")
    shown = [*answer, *answer.neighbours]
    assert sorted(item.citation for item in shown if item.citation) == list(range(1, len(lines) + 1))
    assert len({item.id for item in shown}) == len(shown)
    assert {item.conversation for item in shown if item.type == "message"} == {"c"}


def test_a_statement_comes_with_its_correction_but_for_calls_of_tools(client: Client, user: str) -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "remind", "arguments": "{}"}}
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "My flight leaves on Tuesday."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "done"},
        {"role": "assistant", "content": "I shall remind you."},
        {"role": "user", "content": "Sorry, I meant Wednesday."},
    ]
    client.conversations.append("c", turns, user=user)
    context = client.recall("When does the flight leave?", user=user).context
    assert [line.partition(": ")[2] for line in context.splitlines()] == [
        "My flight leaves on Tuesday.",
        "I shall remind you.",
        "Sorry, I meant Wednesday.",
    ]


def test_turns_beside_a_message_meet_the_conditions_of_the_question(client: Client, user: str) -> None:
    say(client, user, "What's your blood type?", "A negative.", project="private")
    say(client, user, "What's your blood type?", "I would rather not say.", project="work")
    question = "Which blood type has Ada?"
    assert "A negative." in client.recall(question, user=user).context
    assert "A negative." not in client.recall(question, user=user, project="work").context
    of_assistant = client.recall(question, user=user, filters={"event": F("source") == "assistant"})
    assert "What's your blood type?" in of_assistant.context
    assert "A negative." not in of_assistant.context
    later = datetime.now(UTC) + timedelta(hours=1)
    client.conversations.append("c", [{"role": "user", "content": question, "time": later}], user=user)
    say(client, user, "It is on your card.")
    answer = client.recall("blood type of Ada", user=user, since=later)
    assert ([item.content for item in answer], answer.neighbours) == ([question], ())


def test_a_conversation_is_recalled_as_soon_as_it_is_stored(client: Client, user: str) -> None:
    turns = [f"Remark number {number} about the weather in town {number}." for number in range(60)]
    say(client, user, "Where did you leave the umbrella?", "Behind the green door.", *turns)
    answer = client.recall("umbrella", user=user)
    assert answer[0].similarity is not None
    assert "Behind the green door." in answer.context


def test_an_unrelated_question_gets_no_context(client: Client, user: str) -> None:
    fill(client, user)

    answer = client.recall("How long does sourdough rest?", user=user)

    assert answer.nothing_relevant and answer.context == "" and answer.context_tokens == 0
    assert answer.relevance_floor is not None and answer.best_relevance < answer.relevance_floor
    assert not client.recall("kettle", user=user, min_relevance=1.0).results


def test_beside_a_clear_answer_the_context_has_little_else(client: Client, user: str) -> None:
    answer = "The kettle in the kitchen was made in Portugal."
    for text in (answer, "The kettle leaks.", "Bo fixed the kettle.", "Ada owns a red kettle and a blue cup."):
        client.remember(text, user=user)

    clear = client.recall("Was the kettle in the kitchen made in Portugal?", user=user)
    vague = client.recall("kettle", user=user)

    assert len(clear) == len(vague) == 4
    assert [item.content for item in clear if item.citation] == [answer]
    assert all(item.citation for item in vague)


def test_a_context_has_at_most_the_tokens_asked_for_and_decides_how_many_items_there_are(
    client: Client, user: str
) -> None:
    for number in range(30):
        client.remember(f"The kettle was descaled on day {number}.", user=user)

    small, large = (client.recall("kettle", user=user, max_tokens=tokens) for tokens in (60, 400))

    assert 0 < small.context_tokens <= 60 < large.context_tokens <= 400
    assert 0 < len(small) < len(large) == len(large.context.splitlines()) <= 30
    assert all(item.citation for item in large)


def test_a_context_without_room_for_any_item_is_no_long_list_and_the_command_says_why(
    address: str, client: Client, user: str
) -> None:
    for number in range(12):
        client.remember(f"The kettle was descaled on day {number}.", user=user)

    answer = client.recall("kettle", user=user, max_tokens=3)

    assert (answer.context, answer.nothing_relevant, len(answer)) == ("", False, 10)
    told = run(address, "recall", "kettle", "--user", user, "--context", "--max-tokens", "3").stderr
    assert told == "note: not even one result fits into 3 tokens; raise --max-tokens\n"


def test_a_namespace_is_printed_as_the_command_reads_it(address: str, client: Client) -> None:
    client.facts.put(("user", "ada@example.org"), "seat", {"content": "Ada sits by the window."})

    shown = run(address, "recall", "window", "--user", "ada@example.org").stdout
    [printed] = re.findall(r"namespace=(\S+)", shown)
    assert "seat" in run(address, "recall", "window", "--namespace", printed, "--kind", "fact").stdout


def test_of_a_long_document_the_command_shows_the_lines_that_matter(address: str, client: Client, user: str) -> None:
    page = "## Kettle\n\n- Descale it monthly.\n- It lasts.\n"
    manual = "The garden is nice.\n" * 90 + page + "The boiler hums. " * 90
    client.documents.put(f"{user}-manual", manual, scope=Scope(user=user))

    [hit] = client.recall("How often to descale the kettle?", user=user)

    assert "- Descale it monthly.\n- It lasts." in hit.passage_text and len(hit.passage_text) <= 400 < len(hit.content)
    assert hit.passage_text == hit.content[hit.passage_start : hit.passage_end]
    shown = [line.strip() for line in run(address, "recall", "descale kettle", "--user", user).stdout.splitlines()]
    place = shown.index("- Descale it monthly.")
    assert shown[place - 1].endswith("## Kettle") and shown[place + 1] == "- It lasts."


def test_a_view_of_ids_leaves_out_texts(client: Client, user: str) -> None:
    ids = fill(client, user)

    answer = client.recall("kettle", user=user, view="ids")

    assert found(answer) == ids and {item.content for item in answer} == {""} and "kettle" in answer.context


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"query": "a" * 70_000}, "query"),
        ({"vector": [1.0]}, "vector"),
        ({"query": "tea", "messages": [{"content": "tea"}]}, "messages"),
        ({"messages": [{"content": "a" * 70_000}]}, "messages[0].content"),
        ({"messages": [{"content": "tea"}] * 65}, "messages"),
        ({"query": "tea", "kinds": [archive_pb2.RECORD_KIND_RULE]}, "kinds[0]"),
        ({"query": "tea", "kinds": [archive_pb2.RECORD_KIND_FACT] * 65}, "kinds"),
        ({"query": "tea", "limit": 101}, "limit"),
        ({"query": "tea", "max_tokens": -1}, "max_tokens"),
        ({"query": "tea", "tokenizer": "words"}, "tokenizer"),
        ({"query": "tea", "min_relevance": 1.5}, "min_relevance"),
        ({"query": "tea", "min_confidence": -1.0}, "min_confidence"),
        ({"query": "tea", "namespace": [""]}, "namespace[0]"),
        ({"query": "tea", "scope": {"user": " "}}, "scope.user"),
        ({"query": "tea", "time": {"start_time": {"seconds": 10}, "end_time": {"seconds": 5}}}, "time.end_time"),
        ({"query": "tea", "kind_filters": [{"kind": 7, "filter": {}}]}, "kind_filters[0].filter"),
    ],
)
def test_a_bad_request_names_its_field(address: str, request_: dict[str, Any], field: str) -> None:
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
        recall_pb2_grpc.RecallServiceStub(channel).Recall(pb.RecallRequest(**request_))

    assert [violation.field for violation in detail(raised.value, error_details_pb2.BadRequest).field_violations] == [
        field
    ]


def test_a_filter_names_each_kind_once_and_its_own_fields(client: Client, address: str) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match="event_type"):
        client.recall("tea", filters={"memory": F("event_type") == "sale"})
    condition = {"condition": {"field": "content", "comparator": 1, "values": [{"string_value": "x"}]}}
    twice = pb.RecallRequest(query="tea", kind_filters=[{"kind": 2, "filter": condition}] * 2)
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
        recall_pb2_grpc.RecallServiceStub(channel).Recall(twice)
    assert [violation.field for violation in detail(raised.value, error_details_pb2.BadRequest).field_violations] == [
        "kind_filters[1].kind"
    ]


def test_a_blank_question_finds_nothing(client: Client, user: str) -> None:
    fill(client, user)

    assert list(client.recall("  ", user=user)) == list(client.recall("", user=user)) == []
    assert client.recall("kettle", user=user, household=None)  # type: ignore[arg-type] # as optional values are passed
    assert client.recall(messages=[{"role": "user", "content": ""}], user=user).nothing_relevant


def test_a_recall_without_a_question_is_refused(address: str, client: Client, user: str) -> None:
    for missing in ({}, {"query": None}, {"messages": []}):
        with pytest.raises(mnemon.InvalidArgumentError, match="query: must be given"):
            client.recall(user=user, **missing)  # type: ignore[arg-type] # a question
    refused = run(address, "recall", "--user", user)
    assert refused.returncode and "QUERY" in refused.stderr


def test_the_command_shows_what_was_found_and_the_context(address: str, client: Client, user: str) -> None:
    ids = fill(client, user)

    shown = run(address, "recall", "kettle", "--user", user).stdout
    for kind, record in ids.items():
        assert kind.replace("semantic", "statement") in shown and record in shown
    context = run(address, "recall", "kettle", "--user", user, "--context", "--kind", "fact").stdout
    assert context == f"[1] {datetime.now(UTC):%Y-%m-%d} The kettle is red.\n"
    [answer] = run_json(address, "recall", "kettle", "--user", user, "--max-tokens", "30")
    assert answer["context_tokens"] <= 30 and answer["results"]
    nothing = run(address, "recall", "sourdough", "--user", user)
    assert (nothing.returncode, "nothing found" in nothing.stdout) == (0, True)


def test_a_model_searches_the_kinds_that_it_names_and_facts_alone_by_default(client: Client, user: str) -> None:
    ids = fill(client, user)
    fill(client, f"{user}-other")
    client.facts.put(("user", user, "below"), "below", {"content": "The kettle below is blue."})
    client.documents.put(f"{user}-long", "The garden. " * 400 + "The kettle lasts.", scope=Scope(user=user))

    def told(**arguments: Any) -> list[dict[str, Any]]:
        asked = {"query": "kettle", **arguments}
        output = client.tools.call("search_memory", asked, config={"user_id": user})
        return list(json.loads(output.content))

    everything = told(kinds=["fact", "document", "memory", "statement", "event"])
    long = next(each for each in everything if each["key"] == f"{user}-long")
    assert {each["kind"]: each["key"] for each in everything if each is not long} == {
        "document": ids["document"],
        "memory": ids["memory"],
        "fact": ids["fact"],
        "statement": ids["semantic"],
        "event": ids["event"],
    }
    assert long["value"]["content"].startswith("… ") and "The kettle lasts." in long["value"]["content"]
    assert len(everything) == 6
    assert [each["key"] for each in told()] == [each["key"] for each in told(kinds=[])] == [ids["fact"]]
    [event] = told(kinds=["event"], filter={"created_at": {"$lte": "9999-01-01"}})
    assert (event["key"], event["value"]["content"]) == (ids["event"], "Ada bought a kettle.")
    assert told(kinds=["fact", "event"], offset=1) == told(kinds=["fact", "event"])[1:]


@pytest.mark.parametrize(
    ("arguments", "config", "said"),
    [
        ({"kinds": ["rule"]}, {"user_id": "ada"}, "'statement'"),
        ({"kinds": ["event"], "limit": 101}, {"user_id": "ada"}, "at most 100"),
        ({"kinds": ["event"]}, {"agent_id": "helper"}, "no 'user_id'"),
        ({"kinds": ["event"]}, {"user_id": "ada", "org_id": "acme"}, "an organisation"),
    ],
)
def test_a_model_is_told_which_kinds_it_cannot_search(
    client: Client, arguments: dict[str, Any], config: dict[str, str], said: str
) -> None:
    with pytest.raises((mnemon.InvalidArgumentError, mnemon.ConfigurationError), match=said):
        client.tools.call("search_memory", {"query": "kettle", **arguments}, config=config)


def test_a_tool_of_a_program_sends_the_user_for_other_kinds(client: Client, user: str) -> None:
    ids = fill(client, user)
    search = mnemon.create_search_memory_tool(("notes",), store=client)

    [event] = json.loads(search("kettle", kinds=["event"], config={"configurable": {"user_id": user}}))

    assert event["key"] == ids["event"] and search("kettle", config={"user_id": user}) == "[]"


async def test_a_bound_key_recalls_its_own_records_and_facts_alone(tmp_path: Path) -> None:
    admin = make_key(tmp_path, "admin")
    secret = make_key(tmp_path, "writer", "--user", "ada", "--namespace", "users.ada")
    async with guarded_server(tmp_path) as connection:
        server = str(connection.server.address)
        async with mnemon.AsyncClient(server, api_key=admin) as of_admin:
            for name in ("ada", "bob"):
                await of_admin.remember(f"The kettle of {name} leaks.", user=name)
                await of_admin.facts.put(("users", name), "kettle", {"content": f"The kettle of {name} is red."})
        async with mnemon.AsyncClient(server, api_key=secret) as of_ada:
            for whose in ({}, {"user": "ada"}):
                answer = await of_ada.recall("kettle", **whose)  # type: ignore[arg-type] # a scope
                assert sorted(item.content for item in answer) == [
                    "The kettle of ada is red.",
                    "The kettle of ada leaks.",
                ]
            with pytest.raises(mnemon.PermissionDeniedError, match=r"scope\.user"):
                await of_ada.recall("kettle", user="bob")
            assert not await of_ada.recall("kettle", namespace=("users", "bob"), kinds=["fact"])
            search = mnemon.create_search_memory_tool(store=of_ada)
            told = json.loads(await search("kettle", kinds=["fact", "memory"]))
            assert {each["value"]["content"] for each in told} == {
                "The kettle of ada is red.",
                "The kettle of ada leaks.",
            }


def test_a_vault_in_a_program_recalls(tmp_path: Path) -> None:
    with mnemon.Mnemon(tmp_path / "vault", embedding_model="hashing") as memory:
        memory.remember("The kettle leaks.", user="ada")
        assert json.loads(memory.recall("kettle", user="ada").to_json())["results"][0]["content"] == "The kettle leaks."


def test_a_narrow_span_of_time_does_not_make_what_it_holds_irrelevant(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    devices = ("The dishwasher leaves plates dirty.", "The fridge does not cool.", "The oven door no longer shuts.")
    others = (
        *("Bo plays the cello in an orchestra.", "The dentist moved to Queen Street.", "Milo the dog chewed a shoe."),
        *("The garden needs more compost.", "The bicycle has a new chain.", "The lamp in the hall flickers."),
    )
    with mnemon.Mnemon(tmp_path / "vault") as memory:
        for days, text in enumerate((*devices, *others)):
            memory.timeline.add("note", text, user="ada", event_time=now - timedelta(days=days))
        wait_until(lambda: not memory.timeline.status().text_pending_count)

        lately = now - timedelta(days=2, hours=1)
        answer = memory.recall("What needs repair in the kitchen?", since=lately)
        assert {item.content for item in answer} <= {*devices} and not answer.nothing_relevant and answer.context
        assert memory.recall("Who won at Wimbledon?", since=lately).nothing_relevant


async def test_a_context_is_counted_by_the_tokenizer_that_is_named(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizers", "o200k_base")
    async with (
        whole_server(tmp_path / "data", tokenizer_dir=tmp_path / "tokenizers") as connection,
        mnemon.AsyncClient(str(connection.server.address)) as client,
    ):
        await client.remember("the the the the", user="ada")
        estimated = await client.recall("the", user="ada")
        counted = await client.recall("the", user="ada", tokenizer="o200k_base")
        with pytest.raises(mnemon.InvalidArgumentError, match="tokenizer: must be 'utf8/4' or 'o200k_base'"):
            await client.recall("the", user="ada", tokenizer="cl100k_base")

    head = f"[1] {datetime.now(UTC):%Y-%m-%d} "
    assert counted.context == estimated.context == f"{head}the the the the"
    assert (estimated.context_tokens, estimated.tokenizer) == (8, "utf8/4")
    assert (counted.context_tokens, counted.tokenizer) == (len(head) - 1 + 4, "o200k_base")
