"""Every object of a client is on its one connection, and shows itself; many deletions are one call."""

import inspect
from typing import Any

import mnemon
import pytest
from mnemon import AsyncClient, Client
from mnemon.v1 import facts_pb2, memory_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.unit.client.scripted_server import scripted_server

NOUNS = ["archive", "bridge", "changes", "conflicts", "conversations", "documents", "facts"]
NOUNS += ["memories", "rules", "semantic", "timeline", "tools"]


def named(message: Any) -> list[list[str]]:
    """The values of each condition of a filter that names ids."""
    return [[value.string_value for value in part.condition.values] for part in message.any_of.filters]


def test_watch_is_the_method_of_the_changes() -> None:
    with Client("127.0.0.1:1") as client:
        assert client.watch == client.changes.watch


@pytest.mark.parametrize("noun", NOUNS)
async def test_both_clients_have_the_same_objects_and_methods(noun: str) -> None:
    with Client("127.0.0.1:1") as blocking:
        ours = getattr(blocking, noun)
    async with AsyncClient("127.0.0.1:1") as client:
        theirs = getattr(client, noun)

    methods = {name for name in dir(ours) if not name.startswith("_")}
    assert methods == {name for name in dir(theirs) if not name.startswith("_")} != set()
    for name in methods:
        signatures = [inspect.signature(getattr(each, name)).parameters for each in (ours, theirs)]
        assert [list(signature) for signature in signatures] == [list(signatures[0])] * 2
        assert inspect.getdoc(getattr(ours, name))
    assert (type(theirs).__name__, type(theirs)) == (
        f"Async{type(ours).__name__}",
        getattr(mnemon, type(theirs).__name__),
    )


def test_a_client_and_its_objects_say_where_they_are_connected() -> None:
    client = Client("127.0.0.1:1")
    assert repr(client) == "<Client '127.0.0.1:1' (open)>"
    assert repr(client.memories) == "<Memories of '127.0.0.1:1'>"
    client.close()
    assert repr(client) == "<Client '127.0.0.1:1' (closed)>"


def test_an_object_of_a_closed_client_makes_no_call() -> None:
    with Client("127.0.0.1:1") as client:
        facts = client.facts
    with pytest.raises(RuntimeError, match="closed"):
        facts.get(("user", "ada"), "tea")


def test_many_ids_are_deleted_by_one_call() -> None:
    ids = [f"note-{number}" for number in range(300)]
    answers = [pb.DeleteDocumentsResponse(deleted_count=299), facts_pb2.DeleteFactsResponse(deleted_count=1)]
    answers.append(memory_pb2.PurgeMemoriesResponse(purged_count=1))
    with scripted_server(*(lambda *_, each=each: each for each in answers)) as (address, server):  # noqa: SIM117
        with Client(address) as client:
            assert client.documents.delete_many(ids).deleted_count == 299
            assert client.facts.delete_many(("user", "ada"), iter(["tea"])).deleted_count == 1
            assert client.memories.purge(["m-1"]).purged_count == 1

    documents, facts, memories = server.requests
    assert named(documents.filter.filter) == [ids[:256], ids[256:]]
    assert (list(facts.filter.namespace), named(facts.filter.filter)) == (["user", "ada"], [["tea"]])
    assert named(memories.filter.filter) == [["m-1"]]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda client: client.documents.delete_many("note-1"), "doc_ids"),
        (lambda client: client.documents.delete_many([], filters={"topic": "tea"}), "doc_ids"),
        (lambda client: client.documents.delete_many(["note-1"], scope=mnemon.Scope(user="ada")), "doc_ids"),
        (lambda client: client.documents.delete_many(["note-1", 2]), "doc_ids"),
        (lambda client: client.facts.delete_many(("user",), [], subtree=True), "keys"),
        (lambda client: client.facts.delete_many(("user",), ["tea"], where={"score": 1}), "keys"),
        (lambda client: client.memories.purge([], user="ada"), "memory_ids"),
        (lambda client: client.memories.purge(["m-1"], user="ada"), "memory_ids"),
        (lambda client: client.semantic.delete_many([], user="ada"), "memory_ids"),
        (lambda client: client.timeline.delete_many([], user="ada"), "event_ids"),
    ],
)
def test_ids_to_delete_are_several_and_come_without_a_filter(call: Any, field: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        call(client)

    assert [violation.field for violation in raised.value.violations] == [field]
