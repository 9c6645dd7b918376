"""How exports of other memory systems are converted: samples of each, and invalid records."""

import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mnemon import Fact, InvalidArgumentError
from mnemon._cli.imports.facts import FieldMapping, labels_for
from mnemon._cli.imports.forms import FORMS, mapped_by
from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Place


def read(form: str, content: str | bytes) -> list[Found]:
    given = content.encode() if isinstance(content, str) else content
    return list(FORMS[form].read(io.BytesIO(given), "given"))


def items_of(form: str, *values: object) -> list[Item]:
    found = read(form, "\n".join(map(json.dumps, values)))
    assert all(isinstance(each, Item) for each in found), found
    return [each for each in found if isinstance(each, Item)]


def facts_of(form: str, *values: object) -> list[Fact]:
    return [item.record for item in items_of(form, *values) if isinstance(item.record, Fact)]


def failures_of(found: Iterable[Found]) -> list[tuple[Place, str]]:
    return [(each.place, each.error.message) for each in found if isinstance(each, Damaged)]


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
    rows = items_of("chroma", columns)
    assert [fact.value for fact in facts_of("chroma", columns)] == [
        {"content": "First text.", "page": 3},
        {"content": "Second text."},
    ]
    assert [(row.record_id, row.embedding) for row in rows] == [("a", (0.5, 1.0)), ("b", (0.25, 0.0))]
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
    [found], [fact] = items_of("zep", edge), facts_of("zep", edge)
    assert (fact.namespace, fact.key, found.embedding) == (("graph", "g1"), "e1", (1.0, 0.0))
    assert fact.value == {
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


def test_a_knowledge_graph_becomes_a_fact_for_each_entity_and_each_relation() -> None:
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["likes tea", "lives in Berlin"]},
        {"type": "entity", "name": "Berlin", "entityType": "city", "observations": []},
        {"type": "relation", "from": "Ada", "to": "Berlin", "relationType": "lives_in"},
    ]
    ada, berlin, relation = facts_of("mcp-memory", *lines)
    assert (ada.namespace, ada.key) == (("knowledge-graph",), "Ada")
    assert ada.value == {
        "content": "Ada (person): likes tea; lives in Berlin",
        "name": "Ada",
        "entity_type": "person",
        "observations": ["likes tea", "lives in Berlin"],
    }
    assert berlin.value["content"] == "Berlin (city)"
    assert (relation.value["content"], relation.value["from"]) == ("Ada lives_in Berlin", "Ada")
    assert facts_of("mcp-memory", {"entities": lines[:2], "relations": lines[2:]}) == [ada, berlin, relation]


def test_an_entity_on_several_lines_is_one_with_all_of_its_observations() -> None:
    first = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["likes tea"]}
    more = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["rides", "likes tea"]}
    of_fork = {"_type": "entity", "name": "Ada", "observations": [{"content": "sings", "at": "2026-01-31"}]}
    untyped = {"name": "Ada", "entityType": "person", "observations": ["swims"]}
    relation = {"type": "relation", "from": "Ada", "to": "Bo", "relationType": "knows"}
    ada, knows = facts_of("mcp-memory", first, more, relation, of_fork, first, untyped, relation)
    assert ada.value["content"] == "Ada (person): likes tea; rides; sings; swims"
    assert ada.value["observations"][2] == {"content": "sings", "at": "2026-01-31"}
    assert knows.value["relation_type"] == "knows"


def test_relations_are_told_apart_by_where_their_names_end() -> None:
    facts = facts_of(
        "mcp-memory",
        {"type": "relation", "from": "New York", "relationType": "is", "to": "big"},
        {"type": "relation", "from": "New", "relationType": "York is", "to": "big"},
        {"type": "entity", "name": "New York is big", "entityType": "slogan", "observations": []},
    )
    assert len({fact.key for fact in facts}) == 3


def test_a_damaged_first_line_is_told_and_the_others_are_read() -> None:
    lines = ['{"type":"entity","name":"Ad', '{"name":"Bo","entityType":"person"}', "", '{"name":"Cy"', '{"name":"Di"}']
    found = read("mcp-memory", "\n".join(lines))
    assert [each.record_id for each in found if isinstance(each, Item)] == ["Bo", "Di"]
    assert [(place, message[:17]) for place, message in failures_of(found)] == [
        (Place(1), "line: is not JSON"),
        (Place(4), "line: is not JSON"),
    ]


PAST, FUTURE = "2020-01-31T00:00:00Z", (datetime.now(UTC) + timedelta(days=10)).isoformat()


@pytest.mark.parametrize(
    ("form", "record", "ended"),
    [
        ("mem0", {"id": "a", "memory": "t", "expiration_date": "2020-01-31"}, "expired"),
        ("mem0", {"id": "a", "memory": "t", "expiration_date": datetime.now(UTC).date().isoformat()}, ""),
        ("mem0", {"id": "a", "content": "t", "state": "deleted"}, "deleted"),
        ("mem0", {"id": "a", "content": "t", "state": "archived"}, "archived"),
        ("mem0", {"id": "a", "content": "t", "state": "active"}, ""),
        ("mem0", {"id": "a", "content": "t", "deleted": True}, "deleted"),
        ("mem0", {"id": "a", "content": "t", "deleted": False, "deleted_at": None}, ""),
        ("zep", {"uuid": "a", "fact": "t", "invalid_at": PAST}, "expired"),
        ("zep", {"uuid": "a", "fact": "t", "expired_at": PAST, "invalid_at": None}, "expired"),
        ("zep", {"uuid": "a", "fact": "t", "expired_at": FUTURE, "invalid_at": PAST}, "expired"),
        ("langgraph", {"namespace": ["a"], "key": "k", "value": {}, "expires_at": PAST}, "expired"),
    ],
)
def test_a_record_that_no_longer_counts_says_why(form: str, record: dict[str, Any], ended: str) -> None:
    assert [item.ended for item in items_of(form, record)] == [ended]


def test_a_record_that_ends_in_the_future_lives_that_long() -> None:
    [ends, never] = facts_of(
        "zep",
        {"uuid": "a", "fact": "t", "invalid_at": FUTURE},
        {"uuid": "b", "fact": "t", "invalid_at": "9999-12-31T00:00:00Z"},
    )
    assert ends.ttl is not None and timedelta(days=9) < ends.ttl <= timedelta(days=10)
    assert never.ttl is None


def test_the_places_of_a_list_are_lines_and_positions() -> None:
    listed = '[\n {"id": "a", "memory": "t"},\n {"id": "b",\n  "memory": ""}, 5,\n {"id": "c" "memory": "t"}\n]'
    assert failures_of(read("mem0", listed)) == [
        (Place(3, 2), "memory: must be the text of the record"),
        (Place(4, 3), "record: must be an object, not '5'"),
        (Place(5, 4), "line: is not JSON: column 13: Expecting ',' delimiter"),
    ]
    answer = '{"next": null,\n "results": [\n  {"id": "a"}],\n "relations": [{"source": "a"}, {"source": "b"}]}'
    [failure, left_out] = read("mem0", answer)
    assert failures_of([failure]) == [(Place(3, 1), "memory: must be the text of the record")]
    assert left_out == LeftOut(Place(4), "relations", 2)


def test_a_text_that_is_not_utf_8_fails_alone() -> None:
    found = read("mem0", b'{"id": "a", "memory": "caf\xe9"}\n{"id": "b", "memory": "tea"}')
    assert failures_of(found) == [(Place(1), "line: is not UTF-8")]
    assert [each.record_id for each in found if isinstance(each, Item)] == ["b"]
    [wide] = read("mem0", '[{"id": "a", "memory": "Zürich"}]'.encode("utf-16"))
    assert isinstance(wide, Item) and isinstance(wide.record, Fact) and wide.record.value["content"] == "Zürich"


def test_any_other_record_is_converted_by_a_mapping() -> None:
    record = {"data": {"text": "Ada likes tea.", "at": 1_720_000_000_000}, "no": 7, "tags": {"a": 1, "b": None}}
    mapping = FieldMapping("data.text", key="no", created_at="data.at", values={"number": "no"}, spread=("tags",))
    [found] = mapped_by(mapping).read(io.BytesIO(json.dumps(record).encode()), "given")
    assert isinstance(found, Item) and isinstance(found.record, Fact)
    assert (found.record.key, found.record.value) == ("7", {"content": "Ada likes tea.", "a": 1, "number": 7})
    assert found.record.create_time == found.record.update_time == datetime(2024, 7, 3, 9, 46, 40, tzinfo=UTC)
    assert labels_for(("x", "{no}", "u-{tags.a}"), found.source) == ("x", "7", "u-1")
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
        ("mcp-memory", {"type": "relation", "from": "A", "to": "B"}, "relationType: must be the name of the relation"),
    ],
)
def test_an_invalid_record_of_the_system_is_named(system: str, record: dict[str, Any], said: str) -> None:
    [(place, message)] = failures_of(read(system, json.dumps(record)))
    assert place == Place(1) and said in message


def test_a_file_may_hold_one_record_a_list_or_an_api_response() -> None:
    record = {"id": "a", "memory": "text"}
    expected = facts_of("mem0", record)
    for name in ("results", "memories", "items", "edges", "facts", "data"):
        assert facts_of("mem0", {name: [record], "next": None}) == expected
    assert facts_of("mem0", {**record, "data": [1]})[0].value["data"] == [1]
    assert facts_of("mem0", [record, record]) == expected * 2
    assert read("mem0", "\n") == read("mem0", "[]") == []
