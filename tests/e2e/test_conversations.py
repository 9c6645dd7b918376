"""Conversations through the doors of a real server."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon import AsyncClient, Client, ConversationMessage, MessageToolCall, Scope
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall

from tests.support.access import guarded_server, make_key
from tests.support.server import server_process, wait_until

CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        server_process(tmp_path_factory.mktemp("data")) as running,
        Client(running.address()) as found,
    ):
        yield found


def said(*texts: str) -> list[dict[str, str]]:
    """Turns of a user and an assistant."""
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def texts(messages: Any) -> list[str]:
    return [message.content for message in messages]


def indexed(client: Client) -> None:
    wait_until(lambda: not client.timeline.status().text_pending_count)


def test_messages_come_back_as_they_were_said_in_their_order(client: Client, user: str) -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    given = [
        ConversationMessage("user", "What is the weather?", name="Ann", importance=0.7, metadata={"mood": "calm"}),
        CALL,
        {"role": "tool", "content": "sunny", "tool_call_id": "t1"},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}], "message_id": "last"},
        # Said before the others, and added after them.
        ConversationMessage("user", " \n", message_time=noon, payload='{"of": "mine"}'),
    ]
    receipts = client.conversations.append("c", given, user=user)

    found = [*client.conversations.messages("c", user=user)]
    assert texts(found) == ["What is the weather?", "", "sunny", "It is sunny.", " \n"]
    assert [message.role for message in found] == ["user", "assistant", "tool", "assistant", "user"]
    assert [(each.event_id, each.message_id) for each in found] == [
        (receipt.event_id, receipt.message_id) for receipt in receipts
    ]
    first, call, answer, last, blank = found
    assert (first.name, first.importance, first.metadata) == ("Ann", 0.7, {"mood": "calm"})
    assert call.tool_calls == (MessageToolCall("t1", "weather", '{"city": "Bern"}'),)
    assert call.as_chat() == {**CALL, "content": ""}
    assert answer.tool_call_id == "t1"
    assert last.message_id == "last" and '"type": "text"' in last.payload
    assert (blank.message_time, blank.payload) == (noon, '{"of": "mine"}')


def test_messages_of_other_programs_keep_their_times_ids_and_calls_of_tools(client: Client, user: str) -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bern"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}
    given = [
        {"role": "user", "content": "What is the weather?", "id": "m1", "created_at": "2026-03-02T12:00:00Z"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use], "timestamp": noon.timestamp()},
        {"role": "user", "content": [result], "timestamp": noon.timestamp() * 1_000},
        {"role": "user", "content": "Thanks.", "timestamp": f"{noon.timestamp():.6f}"},
        {"role": "assistant", "content": "Sunny.", "time": "a quarter past nine"},
    ]
    client.conversations.append("c", given, user=user)

    asked, call, answer, thanks, last = client.conversations.messages("c", user=user)
    assert (asked.message_id, [each.message_time for each in (asked, call, answer, thanks)]) == ("m1", [noon] * 4)
    assert call.as_chat() == {**CALL, "content": "I look."}
    assert answer.as_chat() == {"role": "tool", "content": "sunny", "tool_call_id": "t1"}
    assert last.message_time != noon and "quarter past nine" in last.payload
    for name, value in (("message_time", "soon"), ("timestamp", "10:15"), ("created_at", True)):
        with pytest.raises(mnemon.InvalidArgumentError, match=rf"messages\[0\].{name}: must be .* not {value!r}"):
            client.conversations.append("c", [{"role": "user", "content": "x", name: value}], user=user)


_BERN = '{"city": "Bern"}'
_CALLED = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": _BERN}}
_FORMS: dict[str, list[Any]] = {
    "chat completions": [
        ChatCompletionMessage.model_validate({"role": "assistant", "tool_calls": [_CALLED]}),
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        ChatCompletionMessage(role="assistant", content="It is sunny."),
    ],
    "responses": [
        {"type": "reasoning", "summary": []},
        ResponseFunctionToolCall(type="function_call", call_id="c1", name="weather", arguments=_BERN),
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is sunny."}]},
    ],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Bern"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": "sunny"}}]},
        {"role": "model", "parts": [{"text": "Sun, sun.", "thought": True}, {"text": "It is sunny."}]},
    ],
}


@pytest.mark.parametrize("form", _FORMS)
def test_what_the_api_of_a_model_answers_is_appended_and_asked_with_as_it_is(
    client: Client, user: str, form: str
) -> None:
    client.conversations.append("c", _FORMS[form], user=user)

    kept = client.conversations.messages("c", user=user)
    call, answer, last = (message for message in kept if "reasoning" not in message.payload)
    assert call.as_chat() == {"role": "assistant", "content": "", "tool_calls": [_CALLED]}
    assert (answer.role, answer.tool_call_id, answer.content.strip('"')) == ("tool", "c1", "sunny")
    assert last.as_chat() == {"role": "assistant", "content": "It is sunny."}
    client.remember("Ada takes an umbrella unless it is sunny.", user=user)
    asked = client.recall(messages=_FORMS[form], user=user, kinds=["memory"])
    assert [item.content for item in asked] == ["Ada takes an umbrella unless it is sunny."]


def test_pages_run_forwards_and_backwards_and_end_with_the_last_ones(client: Client, user: str) -> None:
    everything = [f"turn {number}" for number in range(25)]
    client.conversations.append("c", said(*everything), user=user)

    def read(**how: Any) -> list[str]:
        return texts(client.conversations.messages("c", user=user, page_size=4, **how))

    assert read() == everything
    assert read(newest_first=True) == everything[::-1]
    assert read(last=6) == everything[-6:]
    with pytest.raises(mnemon.InvalidArgumentError, match="last: must be 0 with newest_first"):
        read(last=6, newest_first=True)
    assert texts(client.conversations.messages_page("c", user=user, last=3).messages) == everything[-3:]
    assert [*client.conversations.messages("other", user=user)] == []
    token = client.conversations.messages_page("c", user=user, page_size=4).next_page_token
    with pytest.raises(mnemon.InvalidPageTokenError):
        client.conversations.messages_page("c", user=user, newest_first=True, page_token=token)


def test_a_repeated_call_adds_nothing_and_another_message_under_the_same_id_is_refused(
    client: Client, user: str
) -> None:
    def append(*texts: str, **how: Any) -> list[bool]:
        messages = [{"role": "user", "content": text, "message_id": f"m{n}"} for n, text in enumerate(texts)]
        return [receipt.duplicate for receipt in client.conversations.append("c", messages, user=user, **how)]

    assert append("yes", "yes") == [False, False]
    assert append("yes", "yes", "no") == [True, True, False]
    with pytest.raises(mnemon.MessageExistsError, match="'m2'"):
        append("yes", "yes", "maybe", "new")
    with pytest.raises(mnemon.InvalidArgumentError, match=r"messages\[1\].message_id"):
        client.conversations.append("c", [{"role": "user", "content": "a", "message_id": "x"}] * 2, user=user)
    assert texts(client.conversations.messages("c", user=user)) == ["yes", "yes", "no"]

    unnamed = said("one", "two")
    first = client.conversations.append("d", unnamed, user=user, request_id=f"{user}-r")
    again = client.conversations.append("d", unnamed, user=user, request_id=f"{user}-r")
    assert [each.message_id for each in first] == [each.message_id for each in again]
    with pytest.raises(mnemon.RequestIdReusedError):
        client.conversations.append("d", said("one", "three"), user=user, request_id=f"{user}-r")
    assert texts(client.conversations.messages("d", user=user)) == ["one", "two"]


def test_the_same_id_is_another_conversation_for_another_user_and_persona(client: Client, user: str) -> None:
    other = f"{user}-other"
    for whose in ({"user": user}, {"user": user, "persona": "coach"}, {"user": other}):
        said_by = [{"role": "user", "content": f"I am {whose}.", "message_id": "1"}]
        assert not client.conversations.append("c", said_by, **whose)[0].duplicate  # type: ignore[arg-type] # a scope

    listed = [*client.conversations.list(user=user)]
    assert [(each.conversation_id, each.scope, each.message_count) for each in listed] == [
        ("c", Scope(user=user, persona="coach"), 1),
        ("c", Scope(user=user), 1),
    ]
    assert texts(client.conversations.messages("c", user=user)) == [f"I am {{'user': '{user}'}}."]
    assert len([*client.conversations.messages("c", user=user, persona="coach")]) == 1
    client.conversations.delete_messages("c", last=1, user=user)
    assert len([*client.conversations.messages("c", user=user, persona="coach")]) == 1
    assert client.conversations.delete("c", user=user, persona="coach").deleted_count == 1
    assert len([*client.conversations.messages("c", user=other)]) == 1


def test_conversations_are_listed_by_their_newest_message(client: Client, user: str) -> None:
    for conversation in ("a", "b", "c", "a"):
        client.conversations.append(conversation, said("hello", "hi"), user=user)
    client.timeline.add("summary", "They greet.", user=user, conversation="b")

    assert [each.conversation_id for each in client.conversations.list(user=user, page_size=2)] == ["a", "c", "b"]
    counts = {each.conversation_id: each.message_count for each in client.conversations.list(user=user)}
    assert counts == {"a": 4, "b": 2, "c": 2}


def test_an_imported_conversation_is_listed_at_the_time_of_its_messages(client: Client, user: str) -> None:
    noon = datetime(2025, 5, 1, 12, tzinfo=UTC)
    for conversation, time in (("today", None), ("old", noon), ("older", noon - timedelta(days=1)), ("same", noon)):
        said_then = {"role": "user", "content": "hello", "message_time": time}
        client.conversations.append(conversation, [said_then], user=user)
    for page_size in (1, 2, 100):
        listed = client.conversations.list(user=user, page_size=page_size)
        assert [each.conversation_id for each in listed] == ["today", "same", "old", "older"]


def test_messages_are_removed_by_id_from_the_end_and_after_one(client: Client, user: str) -> None:
    messages = [{"role": "user", "content": f"turn {n}", "message_id": f"m{n}"} for n in range(10)]
    client.conversations.append("c", messages, user=user)

    def left() -> list[str]:
        return [message.message_id for message in client.conversations.messages("c", user=user)]

    with pytest.raises(mnemon.MessageNotFoundError, match="'m99'"):
        client.conversations.delete_messages("c", ["m0", "m99"], user=user)
    assert client.conversations.delete_messages("c", ["m0", "m99"], allow_missing=True, user=user).deleted_count == 1
    key = f"{user}-last"
    first = client.conversations.delete_messages("c", last=2, user=user, request_id=key)
    again = client.conversations.delete_messages("c", last=2, user=user, request_id=key)
    assert (first.deleted_count, first.replayed, again.deleted_count, again.replayed) == (2, False, 2, True)
    assert left() == [f"m{n}" for n in range(1, 8)]
    assert client.conversations.delete_messages("c", after="m3", user=user).deleted_count == 4
    assert left() == ["m1", "m2", "m3"]
    with pytest.raises(mnemon.InvalidArgumentError, match="exactly one"):
        client.conversations.delete_messages("c", "m1", last=1, user=user)

    client.timeline.add("summary", "Turns.", user=user, conversation="c")
    assert client.conversations.delete("c", user=user).deleted_count == 4
    with pytest.raises(mnemon.ConversationNotFoundError, match="'c'"):
        client.conversations.delete("c", user=user)
    assert client.conversations.delete("c", user=user, allow_missing=True).deleted_count == 0


def test_what_was_said_is_recalled_and_the_question_itself_is_not(client: Client, user: str) -> None:
    client.conversations.append("may", said("I moved to Bern in May.", "How do you like it there?"), user=user)
    question = {"role": "user", "content": "Which city did I move to?"}
    client.conversations.append("june", [question], user=user)
    indexed(client)

    answer = client.recall(messages=[question], user=user)
    assert answer[0].content == "I moved to Bern in May." and not answer.nothing_relevant
    for again in (answer, client.recall(question["content"], user=user)):
        assert question["content"] not in [item.content for item in again]
    assert client.recall("I moved to Bern in May.", user=user)[0].content == "I moved to Bern in May."


async def test_remember_keeps_a_text_as_a_memory_and_messages_in_a_conversation(client: Client, user: str) -> None:
    memory = client.remember("Ada dislikes early flights.", user=user)
    receipts = client.remember(messages=said("I moved to Bern.", "Nice."), conversation="c", user=user)
    async with AsyncClient(client.address) as asyncio_client:
        more = {"role": "user", "content": "It is by the river.", "message_id": "m3"}
        await asyncio_client.remember(messages=[more], conversation="c", user=user)

    assert client.memories.get(memory.memory_id).content == "Ada dislikes early flights."
    assert texts(client.conversations.messages("c", user=user)) == ["I moved to Bern.", "Nice.", "It is by the river."]
    assert [client.timeline.get(receipt.event_id).content for receipt in receipts] == ["I moved to Bern.", "Nice."]
    assert [each.content for each in client.memories.list(user=user)] == ["Ada dislikes early flights."]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "content"),
        ({"content": "a", "messages": said("a"), "conversation": "c"}, "content"),
        ({"content": said("a")}, "messages"),
        ({"content": "a", "conversation": "c"}, "messages"),
        ({"messages": said("a")}, "conversation"),
        ({"messages": said("a"), "conversation": ""}, "conversation"),
    ],
)
def test_what_remember_cannot_take_is_named(client: Client, user: str, given: Any, named: str) -> None:
    with pytest.raises(mnemon.InvalidArgumentError) as raised:
        client.remember(**given, user=user)
    assert [each.field for each in raised.value.violations] == [named]
    with pytest.raises(TypeError, match="'decay'"):
        client.remember(messages=said("a"), conversation="c", user=user, decay="stable")  # type: ignore[call-overload] # wrong on purpose


def test_the_context_has_the_last_messages_what_is_recalled_and_the_summary(client: Client, user: str) -> None:
    client.remember("Anna is allergic to peanuts.", user=user)
    client.conversations.append("c", said(*(f"Turn {number} of small talk." for number in range(30))), user=user)
    client.timeline.add("summary", "They talk about little.", user=user, conversation="c")
    client.conversations.append("c", said("Which nuts is Anna allergic to?"), user=user)
    indexed(client)

    context = client.conversations.context("c", user=user)
    assert len(context.messages) == 20 and context.earlier_message_count == 11
    assert context.messages[-1].content == "Which nuts is Anna allergic to?"
    assert context.summary == "They talk about little."
    assert context.recall is not None and "peanuts" in context.recall.context
    recalled = {item.id for item in context.recall}
    assert recalled.isdisjoint(message.event_id for message in context.messages)

    small = client.conversations.context("c", user=user, max_tokens=60)
    assert small.tokens <= 60 and small.messages[-1].content == "Which nuts is Anna allergic to?"
    assert len(small.messages) < 20
    assert client.conversations.context("c", user=user, max_tokens=1).messages == ()
    assert client.conversations.context("none", user=user).recall is None


def test_a_newest_message_that_is_too_long_is_shortened_to_its_beginning_and_its_end(client: Client, user: str) -> None:
    client.conversations.append("c", said("My deploy fails.", "Please paste the log."), user=user)
    log = "\n".join(f"line {number} of the log" for number in range(1_000))
    client.conversations.append("c", [{"role": "user", "content": f"{log}\nWhat is wrong here?"}], user=user)

    context = client.conversations.context("c", user=user, max_tokens=500)
    assert context.tokens <= 500
    newest = context.messages[-1].content
    assert newest.startswith("line 0 of the log") and newest.endswith("What is wrong here?")
    assert texts(context.messages)[:2] == ["My deploy fails.", "Please paste the log."]


def test_the_same_words_said_often_leave_room_for_others(client: Client, user: str) -> None:
    client.conversations.append("first", said("The spare key is under the third flower pot."), user=user)
    for number in range(12):
        client.conversations.append(f"c{number}", said("Where is the spare key?", "I do not know."), user=user)
    indexed(client)

    answer = client.recall("Where is the spare key", user=user)
    assert "The spare key is under the third flower pot." in [item.content for item in answer]


@pytest.mark.parametrize("tokens", [20, 50, 100, 300, 1_000])
def test_a_context_is_never_larger_than_asked_and_begins_with_no_loose_answer(
    client: Client, user: str, tokens: int
) -> None:
    turns: list[Any] = []
    for number in range(8):
        turns += [*said(f"What is the weather on day {number}?"), CALL]
        turns += [{"role": "tool", "content": f"sunny on day {number}", "tool_call_id": "t1"}]
    client.conversations.append("c", turns, user=user)
    indexed(client)

    context = client.conversations.context("c", user=user, max_tokens=tokens)
    assert 0 < context.tokens <= tokens
    assert not context.messages or not context.messages[0].tool_call_id


@pytest.mark.parametrize(("gone", "alone"), [(1, 2), (2, 1), (4, 5), (5, 4)])
def test_a_context_has_no_call_without_its_answer_and_no_answer_without_its_call(
    client: Client, user: str, gone: int, alone: int
) -> None:
    answer = {"role": "tool", "content": "sunny", "tool_call_id": "t1"}
    turns = [*said("And today?"), CALL, answer, *said("And tomorrow?"), CALL, answer, *said("Thanks.")]
    client.conversations.append("c", turns, user=user)
    whole = [*client.conversations.messages("c", user=user)]
    client.conversations.delete_messages("c", whole[gone].message_id, user=user)

    left = [each for each in whole if each is not whole[gone]]
    assert [*client.conversations.messages("c", user=user)] == left
    context = client.conversations.context("c", user=user)
    assert [*context.messages] == [each for each in left if each is not whole[alone]]


def test_a_conversation_is_followed_live_and_read_from_the_feed(client: Client, user: str) -> None:
    scope = Scope(user=user)
    with client.watch(conversation="c", scope=scope) as watch:
        for conversation in ("c", "other", "c"):
            client.conversations.append(conversation, said(f"in {conversation}"), user=user)
        client.conversations.append("c", said("of another user"), user=f"{user}-other")
        client.timeline.add("summary", "They talk.", user=user, conversation="c")
        client.remember("A memory.", user=user)
        client.conversations.append("c", said("bye"), user=user)
        live = [next(watch) for _ in range(4)]

    assert [change.details.content for change in live] == ["in c", "in c", "They talk.", "bye"]
    assert {change.details.conversation for change in live} == {"c"}
    assert [*client.changes.list(conversation="c", scope=scope)] == live
    assert len([*client.changes.list(conversation="c", scope=scope, types=["memory:created"])]) == 0
    client.conversations.delete("c", user=user)
    assert len([*client.changes.list(conversation="c", scope=scope)]) == 4
    with pytest.raises(mnemon.InvalidArgumentError, match=r"filter\.conversation: must be at most 256 bytes"):
        client.changes.list_page(conversation="x" * 300)


async def test_a_caller_with_bounds_reaches_only_the_conversations_of_its_users(tmp_path: Path) -> None:
    admin, secret = make_key(tmp_path, "admin"), make_key(tmp_path, "writer", "--user", "ada")
    async with guarded_server(tmp_path) as connection:
        server = str(connection.server.address)
        async with (
            mnemon.AsyncClient(server, api_key=admin) as of_admin,
            mnemon.AsyncClient(server, api_key=secret) as of_ada,
        ):
            for name in ("ada", "bob"):
                told = [{"role": "user", "content": f"I am {name}.", "message_id": "1"}]
                await of_admin.conversations.append("c", told, user=name, request_id="r")
            await of_ada.conversations.append("c", said("Hello."), user="ada", request_id="r")

            for whose in ({}, {"user": "ada"}):
                listed = [each async for each in of_ada.conversations.list(**whose)]  # type: ignore[arg-type] # a scope
                assert [(each.scope.user, each.message_count) for each in listed] == [("ada", 2)]
            context = await of_ada.conversations.context("c", user="ada")
            assert texts(context.messages) == ["I am ada.", "Hello."]
            page = await of_ada.changes.list_page(conversation="c")
            assert {change.scope.user for change in page.changes} == {"ada"}
            for refused in (
                of_ada.conversations.messages_page("c", user="bob"),
                of_ada.conversations.append("c", said("x"), user="bob"),
                of_ada.conversations.context("c", user="bob"),
                of_ada.conversations.delete_messages("c", last=1, user="bob"),
                of_ada.conversations.delete("c", user="bob"),
            ):
                with pytest.raises(mnemon.PermissionDeniedError, match=r"scope\.user"):
                    await refused
            assert (await of_ada.conversations.delete_messages("c", "1", user="ada")).deleted_count == 1
            assert (await of_ada.conversations.delete("c", user="ada")).deleted_count == 1
            assert [each.scope.user async for each in of_admin.conversations.list()] == ["bob"]


def test_messages_survive_a_kill_and_are_found_again(tmp_path: Path) -> None:
    with server_process(tmp_path) as running, Client(running.address()) as client:
        client.conversations.append("c", said("I moved to Bern.", "Nice."), user="ada")
        running.process.kill()
    with server_process(tmp_path) as running, Client(running.address()) as client:
        assert texts(client.conversations.messages("c", user="ada")) == ["I moved to Bern.", "Nice."]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "messages: must be 1 to 1,000"),
        ([{"role": "", "content": "x"}], r"messages\[0\].role: must say who speaks"),
        ([{"role": "user"}], r"messages\[0\]: must have a"),
        ([{"role": "user", "content": "x", "metadata": {"speaker": "y"}}], r"metadata.speaker: must not be set"),
        ([{"role": "user", "content": "x", "message_time": datetime.max.replace(tzinfo=UTC) - timedelta(0)}], ""),
        ("hello", "must be a list of messages"),
        (ConversationMessage("user", "x"), "must be a list of messages"),
        ([CALL | {"tool_calls": [{"id": "1", "function": {}}]}], r"tool_calls\[0\].name: must name the tool"),
    ],
)
def test_a_message_that_is_wrong_is_named_and_nothing_is_added(
    client: Client, user: str, messages: Any, problem: str
) -> None:
    if problem:
        with pytest.raises(mnemon.InvalidArgumentError, match=problem):
            client.conversations.append("c", messages, user=user)
        assert [*client.conversations.messages("c", user=user)] == []
    else:
        assert client.conversations.append("c", messages, user=user)
    with pytest.raises(mnemon.InvalidArgumentError, match=r"scope\.user"):
        client.conversations.append("c", said("x"))
    with pytest.raises(mnemon.InvalidArgumentError, match="conversation_id"):
        client.conversations.append("", said("x"), user=user)


def test_a_conversation_has_a_title_for_people(client: Client, user: str) -> None:
    long = "What should we cook " + "for the guests " * 20
    for name, first in (
        ("named", {"role": "user", "content": "Hello.", "metadata": {"title": "Trip to Bern"}}),
        ("long", {"role": "user", "content": long}),
        ("short", {"role": "user", "content": " Where is\n my key? "}),
        ("silent", {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "name": "look"}]}),
    ):
        client.conversations.append(name, [first, *said("And then?")], user=user)
    titles = {each.conversation_id: each.title for each in client.conversations.list(user=user)}
    assert titles == {
        "named": "Trip to Bern",
        "long": f"{long[:79].rstrip()}…",
        "short": "Where is my key?",
        "silent": "",
    }
