"""The history of LangChain and the session of OpenAI's Agents SDK, with their own packages, on a real server."""

from collections.abc import Iterator
from typing import Any

import mnemon
import pytest
from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.memory import Session, SessionSettings
from agents.models.interface import Model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables.history import RunnableWithMessageHistory
from mnemon import AsyncClient, Client, ConversationMessage, MessageToolCall
from mnemon.langchain import MnemonChatMessageHistory
from mnemon.openai_agents import MnemonSession
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from tests.support.server import server_process, wait_until

set_tracing_disabled(disabled=True)
CALL = {"name": "weather", "args": {"city": "Bern"}, "id": "t1", "type": "tool_call"}
TURNS: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage([{"type": "text", "text": "I moved to Bern."}, {"type": "image_url", "image_url": "x"}], name="ada"),
    AIMessage("", tool_calls=[CALL], id="run-1", response_metadata={"model": "m"}),
    ToolMessage("sunny", tool_call_id="t1", artifact={"degrees": 20}, status="success"),
    AIMessage("It is sunny.", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
]
ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "I moved to Bern."}]},
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "…"},
    {"type": "function_call", "id": "f1", "call_id": "t1", "name": "weather", "arguments": '{"city": "Bern"}'},
    {"type": "function_call_output", "call_id": "t1", "output": "sunny"},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is sunny.", "annotations": []}],
    },
]
SAID = ["I moved to Bern.", "", "sunny", "It is sunny."]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data")) as running:
        yield running.address()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as opened:
        yield opened


def test_messages_of_langchain_come_back_whole_and_are_found(client: Client, user: str) -> None:
    history = MnemonChatMessageHistory(client, "c", user=user)
    history.add_messages(TURNS)
    history.add_messages(TURNS[2:3])

    assert history.messages == TURNS
    assert MnemonChatMessageHistory(client, "other", user=user).messages == []
    stored = [*client.conversations.messages("c", user=user)]
    assert [message.role for message in stored] == ["system", "user", "assistant", "tool", "assistant"]
    assert [message.content for message in stored[1:]] == SAID
    assert (stored[1].name, stored[2].tool_calls[0].name, stored[3].tool_call_id) == ("ada", "weather", "t1")
    wait_until(lambda: not client.timeline.status().text_pending_count)
    assert client.recall("Where did they move to?", user=user)[0].content == "I moved to Bern."
    history.clear()
    history.clear()
    assert history.messages == []


async def test_a_history_works_with_either_client_in_asyncio(address: str, client: Client, user: str) -> None:
    async with AsyncClient(address) as asyncio_client:
        for number, each in enumerate((client, asyncio_client)):
            history = MnemonChatMessageHistory(each, f"c{number}", user=user)
            await history.aadd_messages(TURNS)
            assert await history.aget_messages() == TURNS
            await history.aclear()
            assert await history.aget_messages() == []
        with pytest.raises(TypeError, match="aget_messages"):
            _ = history.messages


def test_messages_of_another_program_are_read_as_langchain_has_them(client: Client, user: str) -> None:
    calls = (MessageToolCall("t1", "weather", '{"city": "Bern"}'), MessageToolCall("t2", "say", "hello"))
    given = [
        ConversationMessage("system", "Be brief.", "1"),
        ConversationMessage("user", "Hello.", "2", name="Ann", payload='{"type": "mine"}'),
        ConversationMessage("assistant", "", "3", tool_calls=calls),
        ConversationMessage("tool", "sunny", "4", tool_call_id="t1"),
    ]
    client.conversations.append("c", given, user=user)
    second = {**CALL, "name": "say", "args": {"arguments": "hello"}, "id": "t2"}
    assert MnemonChatMessageHistory(client, "c", user=user).messages == [
        SystemMessage("Be brief.", id="1"),
        HumanMessage("Hello.", id="2", name="Ann"),
        AIMessage("", id="3", tool_calls=[CALL, second]),
        ToolMessage("sunny", id="4", tool_call_id="t1"),
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_chain_of_langchain_goes_on_where_it_was(client: Client, user: str) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Noted."), AIMessage("Bern.")]))
    chain = RunnableWithMessageHistory(
        model, lambda session_id: MnemonChatMessageHistory(client, session_id, user=user)
    )
    config: Any = {"configurable": {"session_id": "c"}}
    chain.invoke([HumanMessage("I moved to Bern.")], config)
    assert chain.invoke([HumanMessage("Where do I live?")], config).content == "Bern."
    found = MnemonChatMessageHistory(client, "c", user=user).messages
    assert [message.content for message in found] == ["I moved to Bern.", "Noted.", "Where do I live?", "Bern."]


class Echo(Model):
    """A model that says how many items it was given."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **named: Any) -> Any:  # noqa: A002 - the SDK's
        text = ResponseOutputText(type="output_text", text=f"{len(input)} items", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("the runs of the tests do not stream")


async def test_items_of_the_agents_sdk_come_back_whole_and_are_found(address: str, client: Client, user: str) -> None:
    async with AsyncClient(address) as asyncio_client:
        session = MnemonSession(asyncio_client, "c", user=user)
        assert isinstance(session, Session)
        await session.add_items(ITEMS)
        await session.add_items([])

        assert await session.get_items() == ITEMS
        # An output without its call would be refused by the model.
        assert await session.get_items(limit=2) == ITEMS[-1:]
        assert await session.get_items(limit=3) == ITEMS[-3:]
        assert await session.get_items(limit=0) == []
        session.session_settings = SessionSettings(limit=3)
        assert await session.get_items() == ITEMS[-3:]
        assert await session.pop_item() == ITEMS[-1]
        session.session_settings = None
        assert await session.get_items() == ITEMS[:-1]
        wait_until(lambda: not client.timeline.status().text_pending_count)
        assert client.recall("Where did they move to?", user=user)[0].content == "I moved to Bern."
        stored = [*client.conversations.messages("c", user=user)]
        assert [(each.role, each.content) for each in stored] == [
            ("user", "I moved to Bern."),
            ("assistant", ""),
            ("assistant", ""),
            ("tool", "sunny"),
        ]
        assert stored[2].tool_calls == (MessageToolCall("t1", "weather", '{"city": "Bern"}'),)
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None


async def test_calls_and_answers_that_lack_each_other_are_left_out(address: str, client: Client, user: str) -> None:
    running = {"type": "function_call", "id": "f2", "call_id": "t2", "name": "weather", "arguments": "{}"}
    async with AsyncClient(address) as asyncio_client:
        session = MnemonSession(asyncio_client, "c", user=user)
        await session.add_items([*ITEMS, running])
        assert await session.get_items() == [*ITEMS, running]
        [*_, answer, _, _] = [*client.conversations.messages("c", user=user)]
        client.conversations.delete_messages("c", answer.message_id, user=user)
        assert await session.get_items() == [ITEMS[0], ITEMS[-1], running]
    history = MnemonChatMessageHistory(client, "d", user=user)
    photo, both = HumanMessage([{"type": "image_url", "image_url": "x"}]), [CALL, {**CALL, "id": "t3"}]
    history.add_messages([photo, AIMessage("Let me see.", tool_calls=both), *TURNS[3:]])
    assert [message.content for message in history.messages] == [photo.content, "Let me see.", "It is sunny."]
    assert not any(getattr(message, "tool_calls", ()) for message in history.messages)


async def test_an_agent_goes_on_where_it_was(address: str, user: str) -> None:
    agent = Agent("assistant", model=Echo())
    async with AsyncClient(address) as asyncio_client:
        for said, answered in (("I moved to Bern.", "1 items"), ("Where do I live?", "3 items")):
            session = MnemonSession(asyncio_client, "c", user=user)
            assert (await Runner.run(agent, said, session=session)).final_output == answered
        await asyncio_client.conversations.append("c", [{"role": "tool", "content": "From elsewhere."}], user=user)
        assert (await session.get_items(limit=1)) == [{"role": "user", "content": "From elsewhere."}]
        history = MnemonChatMessageHistory(asyncio_client, "c", user=user)
        await history.aadd_messages([AIMessage("From a chain.")])
        assert (await session.get_items(limit=1)) == [{"role": "assistant", "content": "From a chain."}]
        assert (await history.aget_messages())[0].content == "I moved to Bern."


async def test_many_items_are_added_and_read(address: str, user: str) -> None:
    items: list[Any] = [{"role": "user", "content": f"turn {number}"} for number in range(1_100)]
    async with AsyncClient(address) as asyncio_client:
        session = MnemonSession(asyncio_client, "c", user=user)
        await session.add_items(items)
        assert await session.get_items() == items
        assert await session.get_items(limit=1_050) == items[-1_050:]


def test_a_scope_of_unknown_fields_is_refused(client: Client) -> None:
    history = MnemonChatMessageHistory(client, "c", users="ada")  # type: ignore[call-arg] # wrong on purpose
    with pytest.raises(TypeError, match="did you mean 'user'"):
        history.clear()
    with pytest.raises(mnemon.InvalidArgumentError, match=r"scope\.user"):
        MnemonChatMessageHistory(client, "c").add_messages(TURNS)
