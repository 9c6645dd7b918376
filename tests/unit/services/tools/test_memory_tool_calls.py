"""The two memory tools on stored facts: each of their scenarios, exact answers, and the order of errors."""

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mnemon.shared.tool_definitions import NOTHING_DELETED
from mnemon_server.domain.errors import (
    ConfigurationError,
    FactNotFoundError,
    InvalidArgumentError,
    RequestIdReusedError,
    ToolNotFoundError,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.tools import CallTool, ToolContext, ToolKind

from tests.support.tool_runners import ADA, OpenedTools, open_tools

BOB = ToolContext(config={"user_id": "bob"})
HERS = Namespace(("user", "ada"))
UNKNOWN = "6f2c1d3e-0000-4000-8000-000000000001"


async def refusal(tools: OpenedTools, context: ToolContext = ADA, /, **arguments: Any) -> str:
    with pytest.raises(ValueError) as caught:
        await tools.manage(context, **arguments)
    assert isinstance(caught.value, InvalidArgumentError)
    return str(caught.value)


async def found(tools: OpenedTools, query: str, context: ToolContext = ADA, **arguments: Any) -> list[dict[str, Any]]:
    output = await tools.output("search_memory", context, query=query, **arguments)
    matches = json.loads(output.content)
    assert [match["key"] for match in matches] == [match.fact.key for match in output.artifact]
    return list(matches)


def permitting(*actions: str) -> ToolContext:
    return ToolContext(config=ADA.config, actions_permitted=actions)


# manage_memory


async def test_create_a_new_fact(tools: OpenedTools) -> None:
    said = await tools.manage(content="Ada likes tea", action="create")
    key = said.removeprefix("created memory ")
    assert said == f"created memory {uuid.UUID(key)}"
    fact = await tools.facts.store.get(HERS, key)
    assert (fact.value, fact.metadata, fact.revision) == ({"content": "Ada likes tea"}, {}, 1)
    assert await tools.remember("Ada likes tea") != key


async def test_the_metadata_of_the_context_is_added_to_new_facts(tools: OpenedTools) -> None:
    context = ToolContext(config=ADA.config, metadata={"channel": "chat", "rank": 3})
    key = await tools.remember("Ada likes tea", context)
    other = ToolContext(config=ADA.config, metadata={"channel": "mail"})
    await tools.manage(other, content="Ada likes mate", action="update", id=key)
    fact = await tools.facts.store.get(HERS, key)
    assert (fact.value, fact.metadata) == ({"content": "Ada likes mate"}, {"channel": "chat", "rank": 3})


async def test_update_an_existing_fact(tools: OpenedTools) -> None:
    key = await tools.remember("Ada likes tea")
    assert await tools.manage(content="Ada likes coffee", action="update", id=key) == f"updated memory {key}"
    assert (await tools.facts.store.get(HERS, key)).value == {"content": "Ada likes coffee"}
    assert [match["value"]["content"] for match in await found(tools, "coffee")] == ["Ada likes coffee"]


async def test_an_update_keeps_the_other_fields_of_the_fact(tools: OpenedTools) -> None:
    await tools.facts.put("tea", {"content": "likes tea", "kind": "drink"}, HERS, metadata={"source": "chat"})
    await tools.manage(content="likes mate", action="update", id="tea")
    fact = await tools.facts.store.get(HERS, "tea")
    assert (fact.value, fact.metadata) == ({"content": "likes mate", "kind": "drink"}, {"source": "chat"})


async def test_the_filter_of_the_schema_finds_what_the_metadata_of_the_schema_wrote(tools: OpenedTools) -> None:
    listed = {tool.name: tool.parameters["properties"] for tool in tools.runner.list_tools()}
    [written] = re.findall(r"{.*?}", listed["manage_memory"]["metadata"]["description"])
    [asked] = re.findall(r"{.*?}", listed["search_memory"]["filter"]["description"])
    await tools.remember("Ada likes tea")
    key = (await tools.manage(content="Ada likes mate", metadata=written)).removeprefix("created memory ")
    [match] = await found(tools, "what does Ada like?", filter=asked)
    assert (match["key"], match["value"]) == (key, {"content": "Ada likes mate", "category": "preference"})


async def test_an_update_keeps_the_metadata_that_it_does_not_name_and_removes_nulls(tools: OpenedTools) -> None:
    first = {"category": "drink", "tags": ["hot", "green"], "rank": 3, "sure": True, "mood": None}
    assert (await tools.manage(content="tea", metadata="")).startswith("created memory ")
    key = (await tools.manage(content="likes tea", metadata=first)).removeprefix("created memory ")
    await tools.manage(content="likes cold tea", action="update", id=key, metadata={"tags": ["cold"], "sure": None})
    kept = {"content": "likes cold tea", "category": "drink", "tags": ["cold"], "rank": 3}
    assert (await tools.facts.store.get(HERS, key)).value == kept
    assert [match["value"] for match in await found(tools, "tea", filter={"tags": ["cold"], "rank": {"$gt": 2}})] == [
        kept
    ]
    assert await found(tools, "tea", filter={"sure": True}) == []


async def test_metadata_that_cannot_be_kept_is_refused(tools: OpenedTools) -> None:
    by_app = ToolContext(config=ADA.config, metadata={"channel": "chat"})
    key = await tools.remember("likes tea", by_app)
    taken = "metadata.channel: is set by the application; use another key"
    assert await refusal(tools, by_app, content="x", metadata={"channel": "mail"}) == taken
    assert await refusal(tools, content="x", action="update", id=key, metadata={"channel": "mail"}) == taken
    for wrong, said in (
        ("preference", 'metadata: must be an object, such as {"category": "preference"}'),
        ({"content": "x"}, "metadata.content: is what every memory has; use another key"),
        ({"created_at": "2020"}, "metadata.created_at: is what every memory has; use another key"),
        ({"kind": {"a": 1}}, "metadata.kind: must be text, a whole number, a number"),
        ({"my key": 1}, "metadata: key 'my key': must be 1 to 64 characters"),
    ):
        assert (await refusal(tools, content="x", metadata=wrong)).startswith(said)
    assert await tools.facts.keys(HERS) == [key]


async def test_a_repeated_update_with_other_metadata_is_another_request(tools: OpenedTools) -> None:
    key = await tools.remember("likes tea")
    update = {"content": "likes mate", "action": "update", "id": key}
    for _ in range(2):
        await tools.output("manage_memory", ADA, request_id="r", **update, metadata={"rank": 1})
    with pytest.raises(RequestIdReusedError):
        await tools.output("manage_memory", ADA, request_id="r", **update, metadata={"rank": 2})
    assert (await tools.facts.store.get(HERS, key)).revision == 2


@pytest.mark.parametrize("action", ["update", "delete"])
@pytest.mark.parametrize("id_", [{}, {"id": None}, {"id": ""}])
async def test_an_update_or_a_deletion_without_an_id_is_refused(
    tools: OpenedTools, action: str, id_: Mapping[str, Any]
) -> None:
    assert await refusal(tools, content="x", action=action, **id_) == f"id: must name the memory to {action}"


async def test_an_update_of_an_unknown_id_reports_it(tools: OpenedTools) -> None:
    with pytest.raises(FactNotFoundError):
        await tools.manage(content="x", action="update", id=UNKNOWN)
    assert await tools.facts.keys(None, subtree=True) == []


async def test_delete_a_fact(tools: OpenedTools) -> None:
    key = await tools.remember("Ada likes tea")
    assert await tools.manage(action="delete", id=key) == f"Deleted memory {key}"
    assert await tools.facts.keys(HERS) == []
    for missing in (key, UNKNOWN):
        assert await tools.manage(action="delete", id=missing) == NOTHING_DELETED.format(missing)


async def test_configurable_permitted_actions(tools: OpenedTools) -> None:
    key = await tools.remember("Ada likes tea")
    said = await refusal(tools, permitting("create", "update"), action="delete", id=key)
    assert said == "action: must be one of 'create', 'update', not 'delete'"
    assert await tools.facts.keys(HERS) == [key]


async def test_the_default_action_is_create_or_else_the_first_permitted(tools: OpenedTools) -> None:
    assert (await tools.manage(content="a")).startswith("created memory ")
    assert (await tools.manage(permitting("update", "create"), content="b", action=None)).startswith("created memory ")
    key = await tools.remember("c")
    assert await tools.manage(permitting("delete", "update"), id=key) == f"Deleted memory {key}"


async def test_errors_are_reported_in_a_fixed_order(tools: OpenedTools) -> None:
    once = permitting("create", "update")
    assert (await refusal(tools, once, action="delete", more=1)).startswith("action: must be one of")
    assert (await refusal(tools, once, action="forget", id="x")).startswith("action: must be one of")
    assert (await refusal(tools, action="create", id="x", more=1)).startswith("id: must be left out")
    assert (await refusal(tools, permitting("create"), id="x", content="y")).startswith("id: must be left out")
    assert await refusal(tools, action="update", content=5, more=1) == "id: must name the memory to update"
    assert await refusal(tools, action="create", content=5) == "content: must be the text to create a memory with"
    assert await refusal(tools, action="create", content=" ") == "content: must not be blank"
    known = "is not a known name; known names: 'content', 'action', 'id', 'metadata'"
    assert (
        await refusal(tools, action="create", content="x", more=1, user_id="bob") == f"more: {known}; user_id: {known}"
    )
    assert await tools.facts.keys(None, subtree=True) == []


async def test_an_action_is_not_normalised(tools: OpenedTools) -> None:
    for action in [5, True, ["create"], {"create": 1}, "CREATE", "create "]:
        assert (await refusal(tools, action=action, content="x")).startswith("action: must be one of")


async def test_a_context_cannot_permit_more_than_the_server(tmp_path: Path) -> None:
    async with open_tools(tmp_path, actions_permitted=("update", "create")) as tools:
        said = "context.actions_permitted: may contain only what this server permits, 'update', 'create'; not 'delete'"
        assert await refusal(tools, permitting("create", "delete"), content="x") == said
        said = "action: must be one of 'update', 'create', not 'delete'"
        assert await refusal(tools, ADA, action="delete", id="x") == said
        assert (await tools.manage(permitting("create"), content="x")).startswith("created")
        with pytest.raises(InvalidArgumentError, match=r"^actions_permitted: may contain only what"):
            tools.runner.list_tools(("delete",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"actions_permitted": ()}, "tool_actions_permitted: must contain at least one of 'create', 'update'"),
        ({"actions_permitted": ("forget",)}, "tool_actions_permitted: may contain only 'create', 'update', 'delete'"),
        ({"namespace": ("user-{id}",)}, "the namespace's label 'user-{id}' must be one key in braces"),
        ({"namespace": ("a\0",)}, "namespace\\[0\\]: must be valid Unicode"),
    ],
)
async def test_invalid_settings_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        async with open_tools(tmp_path, **options):
            pass


# search_memory


async def test_text_query_search(tools: OpenedTools) -> None:
    key = await tools.remember("Ada prefers dark mode")
    await tools.remember("The train leaves at noon")
    fact = await tools.facts.store.get(HERS, key)
    first, *_ = await found(tools, "preference for dark mode", limit=10)
    score = first.pop("score")
    assert 0 < score <= 1
    assert first == {
        "namespace": ["user", "ada"],
        "key": key,
        "value": {"content": "Ada prefers dark mode"},
        "created_at": fact.created_at.isoformat(),
        "updated_at": fact.updated_at.isoformat(),
    }


async def test_an_empty_result_is_an_empty_list(tools: OpenedTools) -> None:
    assert (await tools.output("search_memory", query="anything")).content == "[]"


async def test_filtered_search(tools: OpenedTools) -> None:
    await tools.facts.put("a", {"content": "likes dark mode", "category": "preference"}, HERS)
    await tools.facts.put("b", {"content": "likes dark beer"}, HERS, metadata={"category": "drink", "rank": 5})
    by_value = await found(tools, "dark", filter={"category": "preference"})
    by_metadata = await found(tools, "dark", filter={"category": "drink", "rank": {"$gte": 5}})
    assert ([match["key"] for match in by_value], [match["key"] for match in by_metadata]) == (["a"], ["b"])
    assert len(await found(tools, "dark", filter="")) == 2
    for broken in ("{'category': 'drink'}", '{"category": "drink",}', '{category: "drink"}', '{"category": "drink"'):
        assert [match["key"] for match in await found(tools, "dark", filter=broken)] == ["b"]
    with pytest.raises(ValueError, match="filter: must be an object"):
        await found(tools, "dark", filter="{category is drink}")
    as_text = await found(tools, "dark", filter='{"category": "drink"}', limit="1", offset="0")
    assert [match["key"] for match in as_text] == ["b"]
    with pytest.raises(ValueError, match=r"'\$near' is not an operator"):
        await found(tools, "dark", filter={"category": {"$near": 1}})


async def test_the_times_of_results_can_be_filtered(tools: OpenedTools) -> None:
    await tools.facts.put("a", {"content": "likes dark mode"}, HERS)
    [match] = await found(tools, "dark", filter={"created_at": {"$gte": "2020-01-01"}})
    for times, count in (
        ({"updated_at": {"$lt": "2020-01-01T00:00:00Z"}}, 0),
        ({"created_at": match["created_at"], "updated_at": {"$ne": "2020-01-01"}}, 1),
        ({"created_at": {"$nin": [match["created_at"]]}}, 0),
        ({"created_at": {"$lte": match["created_at"][:10]}}, 1),
        ({"created_at": {"$gt": match["created_at"][:10]}}, 0),
    ):
        assert len(await found(tools, "dark", filter=times)) == count
    with pytest.raises(ValueError, match=r"^filter.created_at: must be a time in ISO 8601"):
        await found(tools, "dark", filter={"created_at": {"$gte": "yesterday"}})


async def test_long_memories_are_cut_for_the_model_and_whole_for_the_program(tmp_path: Path) -> None:
    async with open_tools(tmp_path, result_kib=4) as tools:
        long = "dark " * 10_000
        await tools.remember("dark mode")
        for number in range(2):
            await tools.facts.put(str(number), {"content": f"{number} {long}", "rank": number}, HERS)
        output = await tools.output("search_memory", query="dark", offset=1)
        facts = json.loads(output.content)
    assert 3_000 < len(output.content.encode()) <= 4_096
    assert not output.truncated
    assert [match.fact.value["content"] for match in output.artifact if "rank" in match.fact.value] == [
        f"{number} {long}" for number in (fact["value"]["rank"] for fact in facts if "rank" in fact["value"])
    ]
    for position, fact in enumerate(facts):
        assert sorted(fact) == ["created_at", "key", "namespace", "score", "updated_at", "value"]
        if "rank" in fact["value"]:
            shown, mark = fact["value"]["content"].split("\u2026 [cut: ")
            said = f"{len(shown):,} of 50,002 characters; offset {position + 1} and limit 1 show more of it]"
            assert (mark, f"{fact['key']} {long}".startswith(shown)) == (said, True)


async def test_the_last_of_many_memories_says_where_the_others_begin(tmp_path: Path) -> None:
    async with open_tools(tmp_path, result_kib=1) as tools:
        for number in range(9):
            await tools.remember(f"dark mode {number}")
        keys: list[str] = []
        while len(keys) < 9:
            output = await tools.output("search_memory", query="dark mode", offset=len(keys))
            facts = json.loads(output.content)
            keys += [fact["key"] for fact in facts]
            more = {"[more]": f"More was found than fits here: search again with offset {len(keys)}."}
            assert (facts[-1]["value"].items() >= more.items(), output.truncated) == ((len(keys) < 9,) * 2)
        whole = await tools.output("search_memory", query="dark mode")
    assert keys == [match.fact.key for match in whole.artifact]


async def test_limit_and_offset_page_through_the_results(tools: OpenedTools) -> None:
    for number in range(5):
        await tools.remember(f"dark mode {number}")
    every = [match["key"] for match in await found(tools, "dark mode")]
    pages = [[match["key"] for match in await found(tools, "dark mode", limit=2, offset=at)] for at in (0, 2, 4, 6)]
    assert len(every) == 5
    assert [key for page in pages for key in page] == every
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert len(await found(tools, "dark mode", limit=2.0, offset=None, filter=None)) == 2


async def test_configurable_response_format(tools: OpenedTools) -> None:
    key = await tools.remember("Ada prefers dark mode")
    request = {"tool": "search_memory", "arguments": {"query": "dark mode"}, "context": ADA}
    with_facts = await tools.runner.call(CallTool(**request, artifact=True))  # type: ignore[arg-type]
    text_only = await tools.runner.call(CallTool(**request))  # type: ignore[arg-type]
    assert with_facts.content == text_only.content
    assert [(match.fact.key, match.fact.value) for match in with_facts.artifact] == [
        (key, {"content": "Ada prefers dark mode"})
    ]
    assert text_only.artifact == ()


async def test_a_search_with_wrong_arguments_is_refused(tools: OpenedTools) -> None:
    cases = [
        ({}, "query: must be a text that is not blank"),
        ({"query": " "}, "query: must be a text that is not blank"),
        ({"query": "x", "limit": 0}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "x", "limit": "few"}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "x", "offset": -1}, "offset: must be a whole number of 0 to 100,000"),
        ({"query": "x", "filter": []}, "filter: must be an object"),
        ({"query": "x", "namespace": ["user", "bob"]}, "namespace: is not a known name; known names:"),
    ]
    for arguments, said in cases:
        with pytest.raises(InvalidArgumentError) as caught:
            await tools.output("search_memory", **arguments)
        assert str(caught.value).startswith(said)


# Namespaces


@pytest.mark.parametrize(
    ("config", "namespace"),
    [
        ({"org_id": "acme", "agent_id": "alpha", "user_id": "u"}, ("org", "acme", "alpha", "user", "u")),
        ({"configurable": {"user_id": "u-123", "thread_id": "7"}}, ("user", "u-123")),
    ],
)
async def test_runtime_namespace_resolution(
    tools: OpenedTools, config: dict[str, Any], namespace: tuple[str, ...]
) -> None:
    key = await tools.remember("x", ToolContext(config=config))
    assert (await tools.facts.store.get(Namespace(namespace), key)).namespace == namespace


async def test_namespace_templating(tools: OpenedTools) -> None:
    context = ToolContext(namespace=("{user_id}", "memories"), config={"user_id": "u-1", "org_id": "acme"})
    key = await tools.remember("x", context)
    assert (await tools.facts.store.get(Namespace(("u-1", "memories")), key)).key == key
    lacking = ToolContext(namespace=("{user_id}", "memories"), config={"thread_id": "7"})
    with pytest.raises(ConfigurationError, match=r"lacks 'user_id'; its keys are 'thread_id'") as caught:
        await tools.remember("x", lacking)
    assert not isinstance(caught.value, ValueError)


async def test_without_a_namespace_no_tool_runs(tools: OpenedTools) -> None:
    for call in ({"content": "x"}, {"action": "update", "content": "x", "id": "y"}, {"action": "delete", "id": "y"}):
        with pytest.raises(ConfigurationError, match="needs 'org_id', 'user_id' or 'agent_id'"):
            await tools.manage(ToolContext(), **call)
    with pytest.raises(ConfigurationError):
        await tools.output("search_memory", ToolContext(), query="x")
    assert await tools.facts.keys(None, subtree=True) == []


async def test_the_setting_is_the_template_if_the_context_has_none(tmp_path: Path) -> None:
    async with open_tools(tmp_path, namespace=("app", "{user_id}")) as tools:
        await tools.remember("x", ADA)
        await tools.remember("y", ToolContext(namespace=("own",)))
        assert await tools.facts.keys(("app", "ada")) != []
        assert await tools.facts.keys(("own",)) != []
        with pytest.raises(ConfigurationError, match="lacks 'user_id'"):
            await tools.remember("x", ToolContext(config={"org_id": "acme"}))


async def test_a_model_cannot_choose_the_namespace(tools: OpenedTools) -> None:
    for name in ("namespace", "user_id", "context", "config", "configurable"):
        assert (await refusal(tools, content="x", **{name: {"user_id": "bob"}})).startswith(f"{name}: is not a known")
    assert await tools.facts.keys(None, subtree=True) == []


async def test_an_id_of_another_namespace_is_unknown(tools: OpenedTools) -> None:
    key = await tools.remember("Ada likes tea")
    with pytest.raises(FactNotFoundError):
        await tools.manage(BOB, content="x", action="update", id=key)
    assert await tools.manage(BOB, action="delete", id=key) == NOTHING_DELETED.format(key)
    assert await found(tools, "tea", BOB) == []
    assert [match["key"] for match in await found(tools, "tea")] == [key]


async def test_an_agent_named_like_a_label_stays_in_its_own_namespace(tools: OpenedTools) -> None:
    agent = ToolContext(config={"org_id": "acme", "agent_id": "user"})
    user = ToolContext(config={"org_id": "acme", "user_id": "ada"})
    both = ToolContext(config={"org_id": "acme", "agent_id": "user", "user_id": "ada"})
    org = ToolContext(config={"org_id": "acme"})
    contexts = [agent, user, both, org]
    keys = [await tools.remember(f"tea number {number}", context) for number, context in enumerate(contexts)]
    spaces = {
        (await tools.output("search_memory", context, query="tea")).artifact[0].fact.namespace for context in contexts
    }
    assert spaces == {
        ("org", "acme", "user"),
        ("org", "acme", "user", "ada"),
        ("org", "acme", "user", "user", "ada"),
        ("org", "acme"),
    }
    for context, key in zip(contexts, keys, strict=True):
        assert [match["key"] for match in await found(tools, "tea", context)] == [key]
        for other in set(keys) - {key}:
            with pytest.raises(FactNotFoundError):
                await tools.manage(context, content="x", action="update", id=other)
            await tools.manage(context, action="delete", id=other)
    assert sorted(await tools.facts.keys(None, subtree=True)) == sorted(keys)


# Repeated requests


async def test_a_repeated_request_gets_the_same_answer_and_does_nothing_more(tools: OpenedTools) -> None:
    said = [(await tools.output("manage_memory", content="x", request_id="r-1")).content for _ in range(2)]
    assert said[0] == said[1]
    key = said[0].removeprefix("created memory ")
    assert await tools.facts.keys(HERS) == [key]
    with pytest.raises(RequestIdReusedError):
        await tools.output("manage_memory", content="z", request_id="r-1")


async def test_a_repeated_update_or_deletion_does_not_undo_later_changes(tools: OpenedTools) -> None:
    await tools.facts.put("tea", "likes tea", HERS)
    update = {"action": "update", "id": "tea", "content": "likes mate", "request_id": "r-1"}
    await tools.output("manage_memory", **update)
    await tools.manage(action="update", id="tea", content="likes oolong")
    assert (await tools.output("manage_memory", **update)).content == "updated memory tea"
    assert (await tools.facts.store.get(HERS, "tea")).value == {"content": "likes oolong"}
    deletion = {"action": "delete", "id": "tea", "request_id": "r-2"}
    await tools.output("manage_memory", **deletion)
    await tools.facts.put("tea", "likes tea again", HERS)
    assert (await tools.output("manage_memory", **deletion)).content == "Deleted memory tea"
    assert await tools.facts.keys(HERS) == ["tea"]


# The list of tools


def test_the_memory_tools_are_always_listed(tools: OpenedTools) -> None:
    listed = tools.runner.list_tools()
    assert [(tool.name, tool.kind) for tool in listed] == [
        ("manage_memory", ToolKind.MEMORY),
        ("search_memory", ToolKind.MEMORY),
    ]
    assert [tool.actions_permitted for tool in listed] == [("create", "update", "delete"), ()]
    assert listed[1].parameters["required"] == ["query"]


def test_custom_instructions_are_in_the_description(tools: OpenedTools) -> None:
    usual = tools.runner.list_tools()
    own = tools.runner.list_tools(("create",), manage_instructions="Only when asked.", search_instructions="")
    summary = "Create memories that are kept for later conversations. Leave `id` out to create a memory."
    assert own[0].description == f"{summary}\nOnly when asked."
    assert own[0].actions_permitted == ("create",)
    assert "\n" not in own[1].description
    assert usual[1].description.startswith(own[1].description + "\n")


async def test_an_unknown_tool_is_not_found(tools: OpenedTools) -> None:
    with pytest.raises(ToolNotFoundError) as caught:
        await tools.output("forget_memory")
    assert str(caught.value) == "no tool has the name 'forget_memory'; the tools are 'manage_memory', 'search_memory'"
