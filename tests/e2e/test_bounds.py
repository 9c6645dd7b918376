"""Keys that are bound to users or namespaces: for their holders, other records do not exist."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from mnemon.v1 import memory_pb2
from mnemon_server.domain.access import Role
from mnemon_server.transport.roles import permissions

from tests.support.access import bearer, guarded_server, key_id, make_key, methods, open_call, path_of
from tests.support.command import run
from tests.support.server import WAIT_S, Connection

METHODS = list(methods())
PERMISSIONS = permissions({method.containing_service for method in METHODS})


@dataclass
class People:
    """An admin, and two users with keys of their own."""

    connection: Connection
    admin: mnemon.AsyncClient
    ada: mnemon.AsyncClient
    bob: mnemon.AsyncClient
    bobs_secret: str


@asynccontextmanager
async def people(folder: Path, **settings: Any) -> AsyncIterator[People]:
    admin = make_key(folder, "admin")
    ada, bob = (make_key(folder, "writer", "--user", name, "--namespace", f"users.{name}") for name in ("ada", "bob"))
    async with guarded_server(folder, **settings) as connection:
        address = str(connection.server.address)
        async with (
            mnemon.AsyncClient(address, api_key=admin) as of_admin,
            mnemon.AsyncClient(address, api_key=ada) as of_ada,
            mnemon.AsyncClient(address, api_key=bob) as of_bob,
        ):
            yield People(connection, of_admin, of_ada, of_bob, bob)


async def fill(client: mnemon.AsyncClient, name: str) -> str:
    """Stores a record of each kind; returns the id of the memory."""
    await client.documents.put(f"note-{name}", f"{name} sits by the window.", {"seat": 12, "of": name})
    memory = await client.remember(f"{name} dislikes early flights.", type="preference", decay="reinforceable")
    await client.remember(f"{name} likes trains.", type="preference")
    await client.facts.put(("users", name, "travel"), "seat", {"row": 12, "wish": f"the window of {name}"})
    await client.timeline.add("trip", f"{name} took the early train", user=name, event_id=f"trip-{name}")
    await client.timeline.add("trip", f"{name} sat by the window", user=name)
    return memory.memory_id


def recalled(answer: mnemon.RecallAnswer) -> list[Any]:
    """What a recall tells, without how long it took."""
    return [(item.record, item.score, item.duplicates) for item in answer] + [answer.context, answer.best_relevance]


async def everything(client: mnemon.AsyncClient) -> list[Any]:
    """All that a client is told about its records."""
    modes = ("vector", "keyword", "hybrid")
    return [
        *[scores(await client.documents.search("Who sits by the window?", mode=mode)) for mode in modes],
        *[scores(await client.memories.search("early flights of the window", mode=mode)) for mode in modes],
        *[scores(await client.facts.search("window", subtree=True, mode=mode)) for mode in modes],
        scores(await client.memories.search("early flights", user="ada")),
        [each async for each in client.documents.list()],
        [each.memory_id async for each in client.memories.list(show_deleted=True)],
        [each.key async for each in client.facts.list(subtree=True)],
        [each async for each in client.facts.list_namespaces()],
        [each.event_id async for each in client.timeline.list()],
        *[counted(await client.timeline.search(text, last_days=30)) for text in (None, "early window")],
        (await client.timeline.summarize()).to_dict(),
        [told(each) async for each in client.changes.list(full=True)],
        await client.documents.count(),
        await client.documents.count(filters={"of": "ada"}),
        await client.memories.count(),
        await client.memories.count(user="ada"),
        [each.memory.memory_id async for each in client.memories.forecast(by=timedelta(days=400))],
        recalled(await client.recall("Who took the early train by the window?")),
    ]


def told(change: mnemon.Change) -> Any:
    """What a change says; a memory loses confidence from one call to the next."""
    record = replace(change.record, confidence=1.0) if isinstance(change.record, mnemon.Memory) else change.record
    return replace(change, record=record)


def counted(answer: mnemon.WindowAnswer) -> tuple[list[str], dict[str, int]]:
    """The events that were found, and what is told of all that were looked at."""
    diagnostics = answer.to_dict()["diagnostics"]
    return [event.event_id for event in answer.events], {
        name: value for name, value in diagnostics.items() if type(value) is int
    }


def scores(answer: Any) -> list[tuple[str, float]]:
    """What was found, with scores to six digits."""
    return [(str(each.to_dict().get("content", each)), round(each.score, 6)) for each in answer.results]


async def test_nothing_that_another_user_has_or_does_changes_what_a_user_is_told(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        memory_id = await fill(each.ada, "ada")
        before = await everything(each.ada)
        assert before[0]
        assert before[3]
        assert before[6]
        assert len(before[11]) == 2
        for number in range(20):
            await each.bob.remember(f"{number} early flights, trains and windows of bob", type="preference")
        await fill(each.bob, "bob")
        await each.admin.documents.put("common", "Everybody sits by the window.", {"of": "nobody"})
        assert await everything(each.ada) == before
        assert await everything(each.bob) != before
        # Nor does an attack on the records themselves.
        for attempt in foreign_calls(each.bob, memory_id):
            with pytest.raises(mnemon.NotFoundError):
                await attempt
        assert (await each.bob.memories.purge(memory_ids=[memory_id])).purged_count == 0
        assert (await each.bob.documents.delete_many(filters={"seat": 12})).deleted_count == 1
        assert await everything(each.ada) == before
        assert (await each.admin.memories.get(memory_id)).content == "ada dislikes early flights."


def foreign_calls(client: mnemon.AsyncClient, memory_id: str) -> list[Any]:
    """Every call that names a record of Ada."""
    name, key = ("users", "ada", "travel"), "seat"
    return [
        *calls_of_memory(client, memory_id),
        client.documents.get("note-ada"),
        client.documents.update("note-ada", content="bob was here"),
        client.documents.put("note-ada", "bob was here", expected_revision=1),
        client.documents.delete("note-ada"),
        client.documents.delete("note-ada", expected_revision=7),
        client.timeline.get("trip-ada"),
        client.facts.get(name, key),
        client.facts.delete(name, key),
    ]


def calls_of_memory(client: mnemon.AsyncClient, memory_id: str) -> list[Any]:
    """Every call that names a memory."""
    return [
        client.memories.get(memory_id),
        client.memories.update(memory_id, content="bob was here"),
        client.memories.update(memory_id, content="bob was here", expected_revision=1),
        client.memories.reinforce(memory_id),
        client.memories.delete(memory_id),
        client.memories.delete(memory_id, expected_revision=7),
        client.memories.undelete(memory_id),
    ]


async def test_a_bound_key_reads_its_own_records_by_their_ids(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        memory_id = await fill(each.ada, "ada")
        assert (await each.ada.documents.get("note-ada")).content == "ada sits by the window."
        assert (await each.ada.memories.get(memory_id)).content == "ada dislikes early flights."
        assert (await each.ada.timeline.get("trip-ada")).content == "ada took the early train"
        assert (await each.ada.facts.get(("users", "ada", "travel"), "seat")).value["row"] == 12
        assert [one async for one in each.ada.facts.list_namespaces()] == [("users", "ada", "travel")]
        assert (await each.ada.timeline.summarize()).event_count == 2
        assert (await each.ada.memories.reinforce(memory_id)).revision > 1


async def test_a_missing_record_and_one_of_another_user_get_the_same_answer(tmp_path: Path) -> None:
    missing = "00000000-0000-4000-8000-000000000000"
    async with people(tmp_path) as each:
        memory_id = await fill(each.ada, "ada")
        texts = []
        for one in (memory_id, missing):
            for call in calls_of_memory(each.bob, one):
                with pytest.raises(mnemon.MemoryNotFoundError) as caught:
                    await call
                texts.append(str(caught.value).replace(one, "ID"))
        assert texts[:7] == texts[7:]
        assert (await each.bob.memories.delete(memory_id, allow_missing=True)).outcome == "missing"


async def test_new_records_belong_to_the_user_of_the_key_and_to_no_one_else(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        mine = await each.bob.remember("Bob likes tea.", type="preference")
        assert mine.user == "bob"
        many = [result async for result in each.bob.memories.add_many(["Bob likes rain."])]
        assert (await each.admin.memories.get(many[0].receipt.id)).user == "bob"
        events = [mnemon.EpisodicEvent(event_type="trip", content="home", user=user) for user in ("bob", "ada", "bob")]
        added = [result async for result in each.bob.timeline.add_many(events)]
        assert [result.receipt is None for result in added] == [False, True, False]
        assert len([event async for event in each.admin.timeline.list()]) == 2
        await each.bob.documents.put("bobs", "Bob's own.")
        await each.admin.documents.put("common", "Common.")
        assert (await each.admin.documents.get("bobs")).scope.user == "bob"
        for refused in (
            each.bob.remember("Ada likes tea.", type="preference", user="ada"),
            each.bob.memories.update(mine.memory_id, user="ada"),
            each.bob.documents.put("for-ada", "x", scope=mnemon.Scope(user="ada")),
            each.bob.documents.update("bobs", scope={"user": "ada"}),
            each.bob.documents.put("common", "x"),
            each.bob.timeline.add("trip", "to Ada", user="ada"),
            each.bob.timeline.summarize(user="ada"),
            each.bob.timeline.search(user="ada"),
            each.bob.timeline.list_page(user="ada"),
            each.bob.facts.put(("users", "ada"), "seat", {"row": 1}),
            each.bob.facts.put(("users",), "seat", {"row": 1}),
            each.bob.facts.put(("users", "bobby"), "seat", {"row": 1}),
        ):
            with pytest.raises(mnemon.PermissionDeniedError):
                await refused
        assert (await each.admin.documents.get("common")).content == "Common."
        assert (await each.admin.memories.get(mine.memory_id)).user == "bob"
        assert await each.admin.memories.count(user="ada") == 0
        assert [fact.key async for fact in each.admin.facts.list(subtree=True)] == []


async def test_an_update_answers_with_the_user_that_is_stored(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        memory = await each.ada.remember("Ada likes trains.")
        updated = await each.ada.memories.update(memory.memory_id, user="", type="preference")
        assert updated.user == "ada"
        assert await each.admin.memories.get(memory.memory_id) == updated


async def test_the_id_of_a_memory_that_another_user_has_is_taken_without_more_being_told(tmp_path: Path) -> None:
    chosen = "11111111-1111-4111-8111-111111111111"
    async with people(tmp_path) as each:
        await each.ada.remember("Ada's.", type="preference", memory_id=chosen)
        with pytest.raises(mnemon.MemoryExistsError):
            await each.bob.remember("Bob's.", type="preference", memory_id=chosen)
        assert (await each.ada.memories.get(chosen)).content == "Ada's."


async def test_request_ids_of_two_users_do_not_meet(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        first = await each.ada.remember("Ada likes tea.", type="preference", request_id="the same")
        other = await each.bob.remember("Bob likes rain.", type="preference", request_id="the same")
        again = await each.ada.remember("Ada likes tea.", type="preference", request_id="the same")
        receipts = [
            await client.timeline.add("trip", "to work", user=name, request_id="a trip")
            for client, name in ((each.ada, "ada"), (each.bob, "bob"))
        ]
        assert receipts[0].event_id != receipts[1].event_id
        assert first.memory_id == again.memory_id != other.memory_id
        assert (await each.admin.remember("No one's.", type="preference", request_id="the same")).memory_id not in (
            first.memory_id,
            other.memory_id,
        )
        for client in (each.ada, each.bob):
            name = "ada" if client is each.ada else "bob"
            await client.facts.put(("users", name), "k", {"v": name}, request_id="fact")
            assert [fact.value async for fact in client.facts.list(subtree=True)] == [{"v": name}]


async def test_a_page_token_of_another_user_is_not_valid(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        for client, name in ((each.ada, "ada"), (each.bob, "bob")):
            await fill(client, name)
        page = await each.ada.memories.list_page(page_size=1)
        assert page.next_page_token
        with pytest.raises(mnemon.InvalidArgumentError):
            await each.bob.memories.list_page(page_size=1, page_token=page.next_page_token)


async def test_methods_that_concern_the_whole_tenant_refuse_a_bound_key_before_they_read_the_request(
    tmp_path: Path,
) -> None:
    async with people(tmp_path) as each:
        # Also the writer's methods, and those that only read.
        refused = [method for method in METHODS if PERMISSIONS[path_of(method)].whole_tenant]
        assert refused
        for method in refused:
            call = open_call(each.connection.channel, method, each.bobs_secret)
            code = await asyncio.wait_for(call.code(), WAIT_S)
            assert code is grpc.StatusCode.PERMISSION_DENIED, method.full_name


async def test_every_other_method_of_a_tenant_serves_a_bound_key(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        for method in METHODS:
            permission = PERMISSIONS[path_of(method)]
            if not permission.whole_tenant and permission.role <= Role.WRITER:
                call = open_call(each.connection.channel, method, each.bobs_secret)
                await call.write(b"")
                await call.done_writing()
                with suppress(grpc.aio.AioRpcError):
                    await asyncio.wait_for(call.read(), WAIT_S)
                call.cancel()
                assert await call.code() is not grpc.StatusCode.PERMISSION_DENIED, method.full_name


async def test_a_bound_key_says_what_it_is_bound_to(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        found = await each.bob.who_am_i()
        assert (found.users, found.namespaces) == (("bob",), ("users.bob",))
        made = await each.admin.keys.add("two users", role="reader", users=["ada", "bob"])
        listed = {key.key_id: key async for key in each.admin.keys.list()}
        assert listed[made.key.key_id].users == ("ada", "bob")
        assert listed[key_id(each.bobs_secret)].namespaces == ("users.bob",)
        for users, namespaces, role in ((["", "a"], [], "reader"), ([], ["a..b"], "reader"), (["a"], [], "admin")):
            with pytest.raises(mnemon.InvalidArgumentError):
                await each.admin.keys.add("wrong", role=role, users=users, namespaces=namespaces)


async def test_a_key_of_two_users_must_name_the_user_of_a_new_record_and_sees_both(tmp_path: Path) -> None:
    both = make_key(tmp_path, "writer", "--user", "ada", "--user", "bob")
    everybody = make_key(tmp_path, "reader", "--user", "*", "--namespace", "shared")
    async with people(tmp_path) as each:
        await fill(each.ada, "ada")
        await fill(each.bob, "bob")
        await each.admin.remember("Carl's.", type="preference", user="carl")
        await each.admin.facts.put(("shared",), "k", {"v": 1})
        address = str(each.connection.server.address)
        async with mnemon.AsyncClient(address, api_key=both) as two:
            with pytest.raises(mnemon.PermissionDeniedError, match=r"scope\.user must be 'ada' or 'bob'"):
                await two.remember("Whose?", type="preference")
            assert await two.memories.count() == 4
            assert await two.memories.count(user="carl") == 0
            assert [fact.key async for fact in two.facts.list(subtree=True)] == []
        async with mnemon.AsyncClient(address, api_key=everybody) as reader:
            assert await reader.memories.count() == 5
            assert [fact.namespace async for fact in reader.facts.list(subtree=True)] == [("shared",)]


async def test_a_bulk_stream_refuses_the_records_of_others_one_by_one(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        stub = each.connection.memories
        own, foreign = (
            memory_pb2.CreateMemoryRequest(
                memory=memory_pb2.Memory(content=f"of {user}", type="preference", scope={"user": user})
            )
            for user in ("bob", "ada")
        )
        call = stub.BulkCreateMemories(
            iter([memory_pb2.BulkCreateMemoriesRequest(requests=[own, foreign, own])]),
            metadata=bearer(each.bobs_secret),
        )
        [answer] = [each async for each in call]
        assert [result.WhichOneof("outcome") for result in answer.results] == ["receipt", "error", "receipt"]
        assert "scope.user must be 'bob'" in answer.results[1].error.message
        assert await each.admin.memories.count() == 2


async def test_a_file_is_indexed_again_with_a_key_that_names_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    async with people(tmp_path / "data") as each:
        monkeypatch.setenv("MNEMON_API_KEY", each.bobs_secret)
        for text, options in (("one", ()), ("two", ()), ("three", ("--user", "bob"))):
            (notes / "a.txt").write_text(text, encoding="utf-8")
            done = await asyncio.to_thread(run, str(each.connection.server.address), "index", notes, *options)
            assert (done.returncode, done.stderr) == (0, "")
            assert (await each.bob.documents.get("a.txt")).content == text
