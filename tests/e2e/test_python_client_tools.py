"""Every method for tools of the Python client against a real server."""

import json
from collections.abc import Iterator
from typing import Any

import mnemon
import pytest
from mnemon import Client

ADA, BOB = {"user_id": "ada"}, {"user_id": "bob"}


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server without memories."""
    with Client(address) as found:
        found.facts.delete_many((), subtree=True)
        yield found


def abp(tool: str, parameters: dict[str, Any]) -> str:
    """A call as a model writes it."""
    return f"[[ABP_TOOL:{tool}]]\n{json.dumps({'parameters': parameters})}\n[[END_ABP_TOOL]]\n"


def remember(client: Client, content: str, config: dict[str, Any] = ADA, **about: Any) -> str:
    """The id of a new memory."""
    output = client.tools.call("manage_memory", {"content": content}, config=config, **about)
    word, key = output.content.rsplit(" ", 1)
    assert word == "created memory"
    return key


@pytest.mark.parametrize(
    "arguments",
    [
        '{"content": "Ada likes tea",}',
        "{'content': 'Ada likes tea'}",
        '```json\n{"content": "Ada likes tea"}\n```',
        '{"content": "Ada likes\ntea", "action": "create"}',
        '{"action": "create", "content": "Ada likes tea", "id": None}',
    ],
)
def test_the_arguments_of_a_call_are_repaired_as_in_a_text(client: Client, arguments: str) -> None:
    key = client.tools.call("manage_memory", arguments, config=ADA).content.removeprefix("created memory ")
    [found] = json.loads(client.tools.call("search_memory", {"query": "tea"}, config=ADA).content)
    assert found["key"] == key
    assert found["value"]["content"].split() == ["Ada", "likes", "tea"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"content": "Ada likes nuts."}{"content": "Ada lives in Graz."}', "make one call for each"),
        ('{"content": "Ada likes nuts."},\n{"content": "Ada lives in Graz."}', "make one call for each"),
        ('{"content": "Ada weighs 6', "end within a text"),
        ('{"action": "create", "content": "Ada is all', "end within a text"),
    ],
)
def test_arguments_of_which_a_repair_would_lose_a_part_are_refused(client: Client, arguments: str, said: str) -> None:
    with pytest.raises(mnemon.InvalidArgumentError, match=said):
        client.tools.call("manage_memory", arguments, config=ADA)
    assert list(client.facts.list(("user", "ada"))) == []


def test_arguments_that_cannot_be_repaired_are_refused(client: Client) -> None:
    for tool in ("manage_memory", "search_memory"):
        with pytest.raises(mnemon.InvalidArgumentError):
            client.tools.call(tool, "{ : ]", config=ADA)
        with pytest.raises(mnemon.InvalidArgumentError, match=r"content|query"):
            client.tools.call(tool, None, config=ADA)


def test_the_tools_are_described_with_permitted_actions_and_instructions(client: Client) -> None:
    manage, search = client.tools.list(
        actions_permitted=["create", "update"], manage_instructions="Only food.", search_instructions="Before you cook."
    )

    assert (manage.name, manage.kind, manage.actions_permitted) == ("manage_memory", "memory", ("create", "update"))
    assert manage.description.endswith("\nOnly food.") and search.description.endswith("\nBefore you cook.")
    assert manage.parameters["properties"]["action"]["enum"] == ["create", "update"]
    assert search.parameters["properties"]["limit"]["maximum"] == 1000
    plain = client.tools.list()
    assert plain[0].actions_permitted == ("create", "update", "delete")


def test_schemas_are_the_same_in_every_answer_and_as_in_the_factories(client: Client) -> None:
    openai, anthropic = client.tools.schemas("openai"), client.tools.schemas("anthropic")

    assert json.dumps(openai) == json.dumps(client.tools.schemas())
    made = [mnemon.create_manage_memory_tool(store=client), mnemon.create_search_memory_tool(store=client)]
    assert openai == [tool.schema("openai") for tool in made]
    assert anthropic == [tool.schema("anthropic") for tool in made]


def test_a_call_returns_the_text_for_the_model(client: Client) -> None:
    key = remember(client, "Ada likes tea.", metadata={"channel": "chat"})
    arguments = json.dumps({"content": "Ada likes coffee.", "action": "update", "id": key})
    assert client.tools.call("manage_memory", arguments, config=ADA).content == f"updated memory {key}"
    fact = client.facts.get(("user", "ada"), key)
    assert (fact.value, fact.metadata) == ({"content": "Ada likes coffee."}, {"channel": "chat"})

    found = client.tools.call("search_memory", {"query": "coffee"}, config=ADA, response_format="content_and_artifact")
    [told] = json.loads(found.content)
    [match] = found.artifact
    assert told["key"] == match.key == key
    assert told["score"] == match.score
    assert match.fact == fact
    assert client.tools.call("search_memory", {"query": "coffee"}, config=ADA).artifact == ()
    assert client.tools.call("search_memory", {"query": "coffee"}, config=BOB).content == "[]"
    assert client.tools.call("manage_memory", {"action": "delete", "id": key}, config=ADA).content == (
        f"Deleted memory {key}"
    )


def test_a_search_says_that_nothing_relevant_was_found(client: Client) -> None:
    remember(client, "Ada drinks green tea without sugar.")
    for query, expected in (("Ada drinks green tea", False), ("When must Bob's green car go to the garage?", True)):
        output = client.tools.call("search_memory", {"query": query}, config=ADA)
        assert (len(json.loads(output.content)), output.nothing_relevant) == (1, expected)


def test_a_namespace_is_filled_from_the_applications_context(client: Client) -> None:
    notes = ("{user_id}", "notes")
    key = remember(client, "A note.", {"configurable": {"user_id": "ada", "thread": "t"}}, namespace=notes)
    assert client.facts.get(("ada", "notes"), key).value == {"content": "A note."}
    assert client.facts.get(("fixed",), remember(client, "One more.", {}, namespace="fixed")).namespace == ("fixed",)

    with pytest.raises(mnemon.ConfigurationError, match=r"lacks 'user_id'; its keys are 'org_id'") as raised:
        remember(client, "Lost.", {"org_id": "acme"}, namespace=notes)
    assert "acme" not in str(raised.value)
    with pytest.raises(mnemon.ConfigurationError, match="'org_id', 'user_id' or 'agent_id'"):
        remember(client, "Lost.", {})
    assert not isinstance(raised.value, ValueError)


def test_a_text_is_parsed_without_running_anything_and_counted(client: Client) -> None:
    before = client.tools.stats()
    vcp = "<<<[TOOL_REQUEST]>>>\ntool_name:「始」manage_memory「末」,\ncontent:「始」x「末」\n<<<[END_TOOL_REQUEST]>>>"

    parsed = client.tools.parse(abp("manage_memory", {"content": "x"}) + "[[ABP_TOOL:cut]]{")
    assert [(call.tool, call.parameters, call.protocol) for call in parsed.calls] == [
        ("manage_memory", {"content": "x"}, "abp")
    ]
    assert [problem.tool for problem in parsed.problems] == ["cut"]
    assert (client.tools.parse(vcp).fallback, client.tools.parse(vcp).calls[0].parameters) == ("vcp", {"content": "x"})
    strict = client.tools.parse(vcp, dual_mode=False)
    assert (strict.success, strict.error, strict.fallback) == (False, "ABP parsing failed", "plain-text")
    assert client.tools.parse("Good morning.").raw_content == "Good morning."
    open_ended = '[[ABP_TOOL:t]]{"parameters": {"n": 5}}'
    assert client.tools.parse(open_ended).calls == ()
    assert client.tools.parse(open_ended, require_end_marker=False).calls[0].parameters == {"n": 5}

    assert list(client.facts.list(subtree=True)) == []
    after = client.tools.stats()
    assert after.total - before.total == 7
    assert after.plain_text - before.plain_text == 2
    assert after.total == after.abp_success + after.abp_failed + after.plain_text


def test_every_call_of_a_text_runs_and_a_failing_one_fails_alone(client: Client) -> None:
    text = (
        abp("manage_memory", {"content": "Ada likes tea."})
        + abp("manage_memory", {"action": "update", "content": "x"})
        + abp("gone", {})
        + abp("search_memory", {"query": "tea"})
    )
    done = client.tools.execute(text, config=ADA, response_format="content_and_artifact")

    created, refused, unknown, found = done.results
    assert created.content.startswith("created memory ")
    assert isinstance(refused.error, ValueError) and refused.content.startswith("error: id: must name the memory")
    assert isinstance(unknown.error, mnemon.ToolNotFoundError)
    assert found.output is not None
    assert [match.value for match in found.output.artifact] == [{"content": "Ada likes tea."}]
    assert [result.call_id for result in done.results] == [call.call_id for call in done.parsed.calls]
    for given, reason in (
        ('{"content": two words}', "a word outside of a string"),
        ('{"a": "C:\\"}', "write a backslash"),
    ):
        with pytest.raises(mnemon.InvalidArgumentError, match=f"arguments: .* could not be repaired: .*{reason}"):
            client.tools.call("manage_memory", given, config=ADA)
    nowhere = client.tools.execute(abp("search_memory", {"query": "tea"}))
    assert isinstance(nowhere.results[0].error, mnemon.ConfigurationError)
