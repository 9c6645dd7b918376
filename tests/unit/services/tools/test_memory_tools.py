"""The memory tools as a model sees them: descriptions, schemas, the order of checks, and exact answers."""

import json
from datetime import UTC, datetime
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon.shared.tool_definitions import ALL_ACTIONS, MemoryAction, default_action, tool_schema
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import FILTER_OPERATORS, Fact, FactMatch, filter_expression
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.services.tools.definitions import (
    check_manage,
    check_search,
    manage_definition,
    manage_result,
    permitted_actions,
    search_content,
    search_definition,
)

CREATE, UPDATE, DELETE = ALL_ACTIONS
ID = "6f2c1d3e-0000-4000-8000-000000000001"
LEAVE_OUT = "Leave `id` out to create a memory."
PERMITTED = [chosen for size in (1, 2, 3) for chosen in permutations(ALL_ACTIONS, size)]
MATCH = FactMatch(
    Fact(
        Namespace(("org", "acme", "alpha")),
        ID,
        {"content": "likes caf\u00e9", "category": "preference"},
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        datetime(2026, 3, 2, 12, 0, 0, 5, tzinfo=UTC),
        {"channel": "chat"},
        revision=2,
    ),
    0.75,
)


def refusal(action: object, content: object, id: object, permitted: tuple[MemoryAction, ...] = ALL_ACTIONS) -> str:  # noqa: A002 - as the tool names it
    with pytest.raises(ValueError) as caught:
        check_manage(action, content, id, permitted)
    assert isinstance(caught.value, InvalidArgumentError)
    return str(caught.value)


def test_results_are_reported_in_exact_words() -> None:
    assert manage_result(CREATE, "42") == "created memory 42"
    assert manage_result(UPDATE, "42") == "updated memory 42"
    assert manage_result(DELETE, "42") == "Deleted memory 42"
    assert manage_result(DELETE, "{0}") == "Deleted memory {0}"
    assert manage_result(DELETE, "{0}", exists=False).startswith("nothing was deleted: no memory has the id {0}.")


def test_a_valid_call_is_parsed_completely() -> None:
    created = check_manage("create", "likes tea", None, ALL_ACTIONS)
    assert (created.action, created.content, created.id) == (CREATE, "likes tea", "")
    updated = check_manage("update", "likes tea", UUID(ID), ALL_ACTIONS)
    assert (updated.action, updated.content, updated.id) == (UPDATE, "likes tea", ID)
    deleted = check_manage("delete", "ignored", ID, ALL_ACTIONS)
    assert (deleted.action, deleted.content, deleted.id) == (DELETE, "", ID)


def test_an_empty_id_counts_as_missing() -> None:
    assert check_manage("create", "x", "", ALL_ACTIONS).id == ""
    assert refusal("delete", None, "") == "id: must name the memory to delete"


def test_refusals_have_exact_texts() -> None:
    assert refusal("delete", None, ID, (CREATE, UPDATE)) == "action: must be one of 'create', 'update', not 'delete'"
    assert refusal("create", "x", ID) == "id: must be left out to create a memory: it gets an id of its own"
    assert refusal("update", "x", None) == "id: must name the memory to update"
    assert refusal("delete", None, None) == "id: must name the memory to delete"
    assert refusal("create", None, None) == "content: must be the text to create a memory with"
    assert refusal("update", {"a": 1}, ID) == "content: must be the text to update a memory with"
    assert refusal("create", " \n", None) == "content: must not be blank"
    assert refusal("delete", None, 7) == "id: must be text"
    assert refusal("delete", None, "\ud800") == "id: must be valid Unicode without U+0000"
    assert refusal("delete", None, "x" * 513) == "id: must be at most 512 bytes of UTF-8"


@pytest.mark.parametrize("action", ["remove", "CREATE", "", 1, ["create"], {}])
def test_an_unknown_action_is_refused_before_anything_else(action: object) -> None:
    assert refusal(action, None, ID).startswith("action: must be one of 'create', 'update', 'delete', not ")


def test_of_several_errors_the_first_in_order_is_reported() -> None:
    assert refusal("create", None, ID, (DELETE,)).startswith("action: ")
    assert refusal("update", None, None, (DELETE,)).startswith("action: ")
    assert refusal("create", None, "\0").startswith("id: must be left out")
    assert refusal("update", None, None).startswith("id: must name")
    assert refusal("update", None, "\0").startswith("id: must not be blank")


@pytest.mark.parametrize("permitted", PERMITTED)
def test_a_call_without_an_action_creates_or_does_the_first_permitted_action(
    permitted: tuple[MemoryAction, ...],
) -> None:
    expected = CREATE if CREATE in permitted else permitted[0]
    assert default_action(permitted) is expected
    assert check_manage(None, "x", None if expected is CREATE else ID, permitted).action is expected


@given(st.none() | st.text(max_size=8), st.none() | st.text(max_size=8), st.none() | st.text(max_size=8))
def test_no_arguments_run_an_action_that_is_not_permitted(
    action: str | None,
    content: str | None,
    id: str | None,  # noqa: A002 - as the tool names it
) -> None:
    for chosen in (action, *ALL_ACTIONS):
        for permitted in PERMITTED:
            try:
                call = check_manage(chosen, content, id, permitted)
            except InvalidArgumentError:
                continue
            assert call.action in permitted
            assert bool(call.id) is (call.action is not CREATE)
            assert bool(call.content.strip()) is (call.action is not DELETE)


def test_the_permitted_actions_must_be_known_and_at_least_one() -> None:
    assert permitted_actions(("delete", "create", "delete")) == (DELETE, CREATE)
    for wrong in ((), ("create", "purge"), "creat"):
        with pytest.raises(ValueError, match=r"^actions_permitted: (may|must) contain"):
            manage_definition(wrong)


@pytest.mark.parametrize(
    ("permitted", "verbs", "rule"),
    [
        (ALL_ACTIONS, "Create, update or delete", f"{LEAVE_OUT} Give the `id` of the memory to update or delete."),
        (("create", "update"), "Create or update", f"{LEAVE_OUT} Give the `id` of the memory to update."),
        (("create",), "Create", LEAVE_OUT),
        (("delete",), "Delete", "Give the `id` of the memory to delete."),
    ],
)
def test_the_description_names_the_verbs_then_the_rule_of_the_id_then_the_instructions(
    permitted: tuple[str, ...], verbs: str, rule: str
) -> None:
    summary = f"{verbs} memories that are kept for later conversations. {rule}"
    assert manage_definition(permitted, "Only for {food}.").description == f"{summary}\nOnly for {{food}}."
    assert manage_definition(permitted, "").description == summary


def test_instructions_are_in_the_description_of_the_search_too() -> None:
    assert search_definition("Ask first.").description.endswith("by meaning and by word.\nAsk first.")
    assert search_definition("").description.endswith("by meaning and by word.")


@pytest.mark.parametrize(
    ("permitted", "properties", "required"),
    [
        (("create", "update", "delete"), ["content", "action", "id", "metadata"], []),
        (("create", "update"), ["content", "action", "id", "metadata"], ["content"]),
        (("update", "delete"), ["content", "action", "id", "metadata"], ["id"]),
        (("update",), ["content", "action", "id", "metadata"], ["content", "id"]),
        (("create",), ["content", "action", "metadata"], ["content"]),
        (("delete",), ["action", "id"], ["id"]),
    ],
)
def test_the_schema_offers_only_what_the_permitted_actions_accept(
    permitted: tuple[str, ...], properties: list[str], required: list[str]
) -> None:
    definition = manage_definition(permitted)
    schema = definition.parameters
    assert (definition.name, definition.actions_permitted) == ("manage_memory", permitted)
    assert (list(schema["properties"]), schema["required"]) == (properties, required)
    assert schema["properties"]["action"]["enum"] == list(permitted)
    assert schema["properties"]["action"]["default"] == permitted[0]
    assert json.loads(json.dumps(schema)) == schema


def test_the_schema_of_the_search_has_its_defaults() -> None:
    definition = search_definition()
    properties = definition.parameters["properties"]
    assert (definition.name, definition.parameters["required"]) == ("search_memory", ["query"])
    assert list(properties) == ["query", "limit", "offset", "filter", "kinds"]
    assert properties["kinds"]["items"]["enum"] == ["fact", "document", "memory", "statement", "event"]
    assert (properties["limit"]["default"], properties["limit"]["maximum"], properties["offset"]["default"]) == (
        10,
        1000,
        0,
    )


def test_a_tool_has_the_formats_of_vendors() -> None:
    tool = search_definition()
    openai, anthropic = tool_schema(tool, "openai"), tool_schema(tool, "anthropic")
    assert openai == {
        "type": "function",
        "function": {"name": "search_memory", "description": tool.description, "parameters": tool.parameters},
    }
    assert anthropic == {
        "name": "search_memory",
        "description": tool.description,
        "input_schema": tool.parameters,
    }
    assert tool_schema(tool, "gemini") == {
        "name": "search_memory",
        "description": tool.description,
        "parametersJsonSchema": tool.parameters,
    }
    assert tool_schema(tool, "openai-responses") == {"type": "function", "strict": False, **openai["function"]}
    anthropic["input_schema"]["properties"].clear()
    assert tool.parameters["properties"]
    with pytest.raises(
        ValueError, match=r"^style: must be one of 'openai', 'openai-responses', 'anthropic', 'gemini', not 'other'$"
    ):
        tool_schema(tool, "other")


def test_results_are_json_with_six_keys() -> None:
    assert search_content([]) == ("[]", 0)
    text = (
        '[{"namespace": ["org", "acme", "alpha"], "key": "6f2c1d3e-0000-4000-8000-000000000001", '
        '"value": {"content": "likes caf\u00e9", "category": "preference"}, '
        '"created_at": "2026-03-01T12:00:00+00:00", "updated_at": "2026-03-02T12:00:00.000005+00:00", "score": 0.75}]'
    )
    assert search_content([MATCH]) == (text, 1)


def test_a_search_has_defaults() -> None:
    call = check_search("tea")
    assert (call.query, call.limit, call.offset, call.where) == ("tea", 10, 0, None)
    assert check_search("tea", None, None, {}) == call
    filtered = check_search("tea", 5.0, 20, {"category": "preference"})
    assert (filtered.limit, filtered.offset) == (5, 20)
    assert filtered.where == filter_expression({"category": "preference"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"query": " "}, "query: must be a text that is not blank"),
        ({"query": None}, "query: must be a text that is not blank"),
        ({"query": "\ud800"}, "query: must be valid Unicode without U+0000"),
        ({"query": "q", "limit": 0}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "q", "limit": 1_001}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "q", "limit": True}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "q", "limit": 1.5}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "q", "limit": float("inf")}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "q", "limit": "5"}, "limit: must be a whole number of 1 to 1,000"),
        ({"query": "q", "offset": -1}, "offset: must be a whole number of 0 to 100,000"),
        ({"query": "q", "filter": {"k": {"$like": "x"}}}, "filter.k: '$like' is not an operator"),
    ],
)
def test_an_invalid_search_is_a_value_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_search(**arguments)
    assert str(caught.value).startswith(message)


def test_the_operators_described_to_a_model_are_those_that_a_filter_accepts() -> None:
    told = search_definition().parameters["properties"]["filter"]["description"]
    assert told.endswith(f"object of {', '.join(FILTER_OPERATORS)}.")
