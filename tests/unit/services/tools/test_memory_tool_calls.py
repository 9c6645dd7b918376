"""The two memory tools on stored facts: metadata, filters, what is cut, and the order of errors."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from mnemon_server.domain.errors import (
    ConfigurationError,
    InvalidArgumentError,
    RequestIdReusedError,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.tools import ToolContext

from tests.support.tool_runners import ADA, OpenedTools, open_tools

HERS = Namespace(("user", "ada"))


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


async def test_the_metadata_of_the_context_is_added_to_new_facts(tools: OpenedTools) -> None:
    context = ToolContext(config=ADA.config, metadata={"channel": "chat", "rank": 3})
    key = await tools.remember("Ada likes tea", context)
    other = ToolContext(config=ADA.config, metadata={"channel": "mail"})
    await tools.manage(other, content="Ada likes mate", action="update", id=key)
    fact = await tools.facts.store.get(HERS, key)
    assert (fact.value, fact.metadata) == ({"content": "Ada likes mate"}, {"channel": "chat", "rank": 3})


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


async def test_times_and_days_are_those_of_the_zone(tools: OpenedTools) -> None:
    await tools.facts.put("a", {"content": "likes dark mode"}, HERS)
    early, late = (replace(ADA, time_zone=ZoneInfo(name)) for name in ("Pacific/Kiritimati", "Pacific/Niue"))
    [match] = await found(tools, "dark", early)
    day = match["created_at"][:10]
    # The clocks of both are 25 hours apart.
    assert match["created_at"].endswith("+14:00") and day != (await found(tools, "dark", late))[0]["created_at"][:10]
    ever = {"created_at": {"$gte": "0001-01-01", "$lte": "9999-12-31"}}
    assert [len(await found(tools, "dark", context, filter=ever)) for context in (early, late)] == [1, 1]
    on_day = {"created_at": {"$gte": day, "$lte": day}}
    assert [len(await found(tools, "dark", context, filter=on_day)) for context in (early, late)] == [1, 0]


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


# Namespaces


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


# Repeated requests


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
