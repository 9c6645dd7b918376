"""How exports of other memory systems are converted: samples of each, and invalid records."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mnemon import Fact, InvalidArgumentError
from mnemon._mappings import SYSTEMS, FieldMapping, Mapped, labels_for, mapped, records_in


def facts_of(system: str, found: object) -> list[Fact]:
    return [SYSTEMS[system](record).fact for record in records_in(found) if isinstance(record, dict)]


def test_mem0_records_go_where_the_tools_look_for_their_user() -> None:
    page = {
        "results": [
            {
                "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
                "memory": "Ada prefers window seats.",
                "hash": "26b8ab0c2b1d1f8c1d9a4e3c3bb9a9a2",
                "metadata": {"category": "travel", "certain": True, "nothing": None},
                "created_at": "2024-07-01T10:00:00.123456-07:00",
                "updated_at": "2024-07-02T10:00:00-07:00",
                "user_id": "ada",
                "score": 0.7,
            },
            {
                "id": "b",
                "memory": "Summaries are wanted on Mondays.",
                "metadata": None,
                "created_at": "2024-07-01T10:00:00Z",
                "updated_at": None,
                "user_id": "ada",
                "agent_id": "planner",
                "run_id": "r-1",
                "categories": ["work"],
            },
            {"id": "c", "memory": "Of nobody in particular."},
        ],
        "count": 3,
    }
    first, second, third = facts_of("mem0", page)
    assert (first.namespace, first.key) == (("user", "ada"), "892db2ae-06d9-49e5-8b3e-585ef9b85b8e")
    assert first.value == {"content": "Ada prefers window seats.", "category": "travel", "certain": True}
    assert first.create_time == datetime(2024, 7, 1, 17, 0, 0, 123456, tzinfo=UTC)
    assert first.update_time == datetime(2024, 7, 2, 17, tzinfo=UTC)
    assert second.namespace == ("user", "ada", "agent", "planner")
    assert second.value == {"content": "Summaries are wanted on Mondays.", "run_id": "r-1", "categories": ["work"]}
    assert second.update_time == second.create_time
    assert third.namespace == ("mem0",)


def test_langgraph_items_keep_their_namespace_key_and_value() -> None:
    item = {
        "namespace": ["users", "ada", "memories"],
        "key": "m1",
        "value": {"text": "Likes tea.", "tags": ["a"], "deep": {"n": 1}},
        "created_at": "2025-03-30T12:00:00.000001+00:00",
        "updated_at": "2025-03-31T12:00:00+00:00",
    }
    row = {"prefix": "users.ada", "key": "m2", "value": '{"kind": "row"}', "ttl_minutes": 90}
    first, second = facts_of("langgraph", {"items": [item, row]})
    assert (first.namespace, first.key) == (("users", "ada", "memories"), "m1")
    assert first.value == item["value"]
    assert first.create_time == datetime(2025, 3, 30, 12, 0, 0, 1, tzinfo=UTC)
    assert (second.namespace, second.value, second.ttl) == (("users", "ada"), {"kind": "row"}, timedelta(minutes=90))


def test_chroma_collections_come_as_rows_or_as_columns() -> None:
    columns = {
        "ids": ["a", "b"],
        "documents": ["First text.", "Second text."],
        "metadatas": [{"page": 3}, None],
        "embeddings": [[0.5, 1], [0.25, 0.0]],
        "uris": None,
    }
    rows = [SYSTEMS["chroma"](record) for record in records_in(columns) if isinstance(record, dict)]
    assert [row.fact.value for row in rows] == [{"content": "First text.", "page": 3}, {"content": "Second text."}]
    assert [(row.fact.namespace, row.fact.key, row.embedding) for row in rows] == [
        (("chroma",), "a", (0.5, 1.0)),
        (("chroma",), "b", (0.25, 0.0)),
    ]
    [fact] = facts_of("chroma", {"id": "c", "text_chunk": "A dumped chunk.", "metadata": {"n": 1}})
    assert fact.value == {"content": "A dumped chunk.", "n": 1}


def test_facts_of_a_zep_graph_keep_their_validity_times() -> None:
    edge = {
        "uuid": "e1",
        "group_id": "g1",
        "name": "LIVES_IN",
        "fact": "Ada lives in Berlin.",
        "source_node_uuid": "n1",
        "target_node_uuid": "n2",
        "created_at": "2025-01-02T03:04:05.000000Z",
        "valid_at": "2025-01-01T00:00:00Z",
        "invalid_at": None,
        "expired_at": None,
        "episodes": ["p1"],
        "attributes": {"certainty": 0.5},
        "fact_embedding": [1.0, 0.0],
    }
    found = SYSTEMS["zep"](edge)
    assert (found.fact.namespace, found.fact.key, found.embedding) == (("graph", "g1"), "e1", (1.0, 0.0))
    assert found.fact.value == {
        "content": "Ada lives in Berlin.",
        "name": "LIVES_IN",
        "group_id": "g1",
        "source_node_uuid": "n1",
        "target_node_uuid": "n2",
        "valid_at": "2025-01-01T00:00:00Z",
        "episodes": ["p1"],
        "certainty": 0.5,
    }
    [of_user] = facts_of("zep", {"edges": [{"uuid": "e2", "fact": "Ada rides.", "user_id": "ada"}]})
    assert of_user.namespace == ("user", "ada")


def test_the_memory_file_of_the_model_context_protocol_becomes_one_fact_per_line() -> None:
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["likes tea", "lives in Berlin"]},
        {"type": "entity", "name": "Berlin", "entityType": "city", "observations": []},
        {"type": "relation", "from": "Ada", "to": "Berlin", "relationType": "lives_in"},
    ]
    ada, berlin, relation = (SYSTEMS["mcp-memory"](line).fact for line in lines)
    assert (ada.namespace, ada.key) == (("knowledge-graph",), "Ada")
    assert ada.value == {
        "content": "Ada (person): likes tea; lives in Berlin",
        "name": "Ada",
        "entity_type": "person",
        "observations": ["likes tea", "lives in Berlin"],
    }
    assert berlin.value["content"] == "Berlin (city)"
    assert (relation.key, relation.value["from"]) == ("Ada lives_in Berlin", "Ada")


def test_any_other_record_is_converted_by_a_mapping() -> None:
    record = {"data": {"text": "Ada likes tea.", "at": 1_720_000_000_000}, "no": 7, "tags": {"a": 1, "b": None}}
    mapping = FieldMapping("data.text", key="no", created_at="data.at", values={"number": "no"}, spread=("tags",))
    fact = mapped(record, mapping, ("imported",)).fact
    assert (fact.key, fact.value) == ("7", {"content": "Ada likes tea.", "a": 1, "number": 7})
    assert fact.create_time == fact.update_time == datetime(2024, 7, 3, 9, 46, 40, tzinfo=UTC)
    assert labels_for(("x", "{no}", "u-{tags.a}"), record) == ("x", "7", "u-1")
    with pytest.raises(InvalidArgumentError, match="namespace: needs 'user_id'"):
        labels_for(("user", "{user_id}"), record)


@pytest.mark.parametrize(
    ("system", "record", "said"),
    [
        ("mem0", {"id": "a"}, "memory: must be the text of the record"),
        ("mem0", {"id": "a", "memory": " "}, "memory: must be the text"),
        ("mem0", {"memory": "text"}, "id: must be the id of the record"),
        ("mem0", {"id": "a", "memory": "text", "created_at": "yesterday"}, "created_at: must be a time"),
        ("langgraph", {"key": "k", "value": {}}, "namespace: must be a list of labels"),
        ("langgraph", {"namespace": ["a"], "key": "k", "value": "{"}, "value: must be an object"),
        ("langgraph", {"namespace": ["a"], "value": {}}, "key: must be the id of the record"),
        ("chroma", {"id": "a", "document": None}, "document: must be the text"),
        ("chroma", {"id": "a", "document": "t", "embedding": "x"}, "embedding: must be a list of numbers"),
        ("zep", {"uuid": "a", "fact": 5}, "fact: must be the text"),
        ("mcp-memory", {"type": "thing"}, 'type: must be "entity" or "relation"'),
        ("mcp-memory", {"type": "entity", "name": "A", "observations": [1]}, "observations: must be a list of texts"),
        ("mcp-memory", {"type": "relation", "from": "A", "to": "B"}, "relationType: must be the id"),
    ],
)
def test_an_invalid_record_of_the_system_is_named(system: str, record: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        SYSTEMS[system](record)


def test_a_file_may_hold_one_record_a_list_or_an_api_response() -> None:
    record = {"id": "a", "memory": "text"}
    assert list(records_in(record)) == [record]
    for name in ("results", "memories", "items", "edges", "facts", "data"):
        assert list(records_in({name: [record], "next": None})) == [record]
    assert list(records_in({"id": "a", "data": [1]})) == [{"id": "a", "data": [1]}]
    assert list(records_in([record, 5])) == [record, 5]
    assert isinstance(SYSTEMS["mem0"](record), Mapped)
