"""An id without a visible character is refused with its field, whether of a user, another scope or a record."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mnemon import InvalidArgumentError, Mnemon, Scope

BLANKS = [" ", "\t\n", "\u00a0", "\u200b", "\ufeff\u2060", "\u3164", "\u2800", "\u034f\ufe0f"]
VISIBLE = ["a b", " ada", "👩\u200d💻", "\u200fעדה", "0", "_", "東京"]
CALLS: dict[str, Callable[[Mnemon, dict[str, Any]], Any]] = {
    "put a document": lambda client, part: client.documents.put("d", "tea", scope=Scope(**part)),
    "update a document": lambda client, part: client.documents.update("known", scope=Scope(**part)),
    "count documents": lambda client, part: client.documents.count(scope=Scope(**part)),
    "add a memory": lambda client, part: client.memories.add("tea", **part),
    "search memories": lambda client, part: client.memories.search("tea", **part),
    "purge memories": lambda client, part: client.memories.purge(**part),
    "add a statement": lambda client, part: client.semantic.add("tea", **{"user": "ada", **part}),
    "search statements": lambda client, part: client.semantic.search("tea", **part),
    "record an event": lambda client, part: client.timeline.add("task", "tea", **{"user": "ada", **part}),
    "search the timeline": lambda client, part: client.timeline.search("tea", **part),
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mnemon]:
    with Mnemon(tmp_path_factory.mktemp("vault"), embedding_model="hashing") as client:
        client.documents.put("known", "tea")
        yield client


@pytest.mark.parametrize("call", CALLS)
def test_a_blank_part_of_a_scope_is_refused_by_every_call(memory: Mnemon, call: str) -> None:
    for part in ("user", "household", "persona", "agent", "project"):
        with pytest.raises(InvalidArgumentError, match=rf"\b{part}: must not be blank"):
            CALLS[call](memory, {part: "\u00a0"})


@pytest.mark.parametrize("blank", BLANKS, ids=ascii)
def test_a_user_or_a_label_of_a_namespace_that_cannot_be_seen_is_refused(memory: Mnemon, blank: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"memory\.scope\.user: must not be blank"):
        memory.memories.add("tea", user=blank)
    with pytest.raises(InvalidArgumentError, match=r"namespace\[1\]: must not be blank"):
        memory.facts.put(("users", blank), "k", {"content": "tea"})
    with pytest.raises(InvalidArgumentError, match=r"namespace\[0\]: must not be blank"):
        list(memory.facts.list(namespace=(blank,)))


@pytest.mark.parametrize("name", VISIBLE, ids=ascii)
def test_a_name_with_a_character_that_can_be_seen_is_a_user(memory: Mnemon, name: str) -> None:
    memory.memories.add("tea", user=name)
    memory.timeline.add("task", "tea", user=name)
    memory.facts.put(("users", name), "k", {"content": "tea"})
    assert (memory.memories.count(user=name), memory.facts.get(("users", name), "k").key) == (1, "k")


NAMED: dict[str, Callable[[Mnemon, str], Any]] = {
    "document.doc_id": lambda client, blank: client.documents.put(blank, "tea"),
    "event.event_id": lambda client, blank: client.timeline.add("task", "tea", user="ada", event_id=blank),
    "event_id": lambda client, blank: client.timeline.get(blank),
    "event_ids[1]": lambda client, blank: client.timeline.delete_many(["known", blank]),
    "event.event_type": lambda client, blank: client.timeline.add(blank, "tea", user="ada"),
    "fact.key": lambda client, blank: client.facts.put(("users", "ada"), blank, {"content": "tea"}),
    "key": lambda client, blank: client.facts.get(("users", "ada"), blank),
    "names[1].key": lambda client, blank: client.facts.get_many([(("users",), "k"), (("users",), blank)]),
    "memory_ids[0]": lambda client, blank: client.semantic.delete_many([blank]),
    "request_id": lambda client, blank: client.documents.put("d", "tea", request_id=blank),
    "rule.conditions.users": lambda client, blank: client.rules.add({"name": "r", "conditions": {"users": [blank]}}),
    "rule.conditions.personas": lambda client, blank: client.rules.add(
        {"name": "r", "conditions": {"personas": ["x", blank]}}
    ),
    "rule.conditions.sources": lambda client, blank: client.rules.add(
        {"name": "r", "conditions": {"sources": [blank]}}
    ),
}


@pytest.mark.parametrize("blank", [" ", "\u200b"], ids=ascii)
@pytest.mark.parametrize("field", NAMED)
def test_a_blank_id_of_a_record_or_in_a_list_is_refused(memory: Mnemon, field: str, blank: str) -> None:
    with pytest.raises(InvalidArgumentError, match="blank") as raised:
        NAMED[field](memory, blank)
    assert [each.field for each in raised.value.violations] == [field]
