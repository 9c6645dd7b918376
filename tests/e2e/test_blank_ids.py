"""An id of a user, or another part of a scope, in which nothing can be seen is refused with its field."""

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
