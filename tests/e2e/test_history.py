"""Earlier versions of records: kept, listed, restored, and gone for good when that is asked for."""

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mnemon import (
    AsyncClient,
    F,
    IncompleteHistoryWarning,
    InvalidOperationError,
    MemoryNotFoundError,
    MnemonError,
    Scope,
    VersionEnding,
    VersionNotFoundError,
)

from tests.support.access import guarded_server, make_key
from tests.support.erasing import found_in
from tests.support.server import whole_server

DOOR = "mnemon.v1.MemoryService/"


@asynccontextmanager
async def client_of(folder: Path, **settings: Any) -> AsyncIterator[AsyncClient]:
    """A client of a server on this folder."""
    async with whole_server(folder, **settings) as connected, AsyncClient(str(connected.server.address)) as client:
        yield client


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of a server on an empty folder."""
    async with client_of(tmp_path) as made:
        yield made


async def versions_of(client: AsyncClient, memory_id: str) -> list[tuple[str, VersionEnding]]:
    """The texts of a memory's versions, newest first, each with what ended it."""
    return [(each.memory.content, each.version.ending) async for each in client.memories.versions(memory_id)]


async def test_every_change_leaves_a_version_that_says_when_it_held_and_who_ended_it(client: AsyncClient) -> None:
    first = await client.memories.add("Ada likes tea.", user="ada", metadata={"score": 1})
    second = await client.memories.update(first.memory_id, content="Ada likes coffee.", set_metadata={"score": 2.5})
    await client.memories.delete(first.memory_id)

    deleted, changed = [each async for each in client.memories.versions(first.memory_id)]
    assert (changed.memory.content, changed.memory.metadata, changed.memory.user) == (
        "Ada likes tea.",
        {"score": 1},
        "ada",
    )
    assert (changed.memory.revision, changed.memory.create_time) == (1, first.create_time)
    assert (changed.version.start_time, changed.version.end_time) == (first.update_time, second.update_time)
    assert (changed.version.ending, changed.version.method) == (VersionEnding.UPDATE, DOOR + "UpdateMemory")
    assert (deleted.memory.content, deleted.version.start_time) == ("Ada likes coffee.", second.update_time)
    assert (deleted.version.ending, deleted.version.method) == (VersionEnding.DELETE, DOOR + "DeleteMemory")
    assert changed.version.call_id
    assert changed.version.call_id != deleted.version.call_id


async def test_a_restored_version_is_current_and_found_again_and_can_be_taken_back(client: AsyncClient) -> None:
    memory = await client.memories.add("The heron lives by the river.", user="ada", type="note")
    await client.memories.update(memory.memory_id, content="Something else entirely.", user="bob", type="plan")
    [version] = [each.version.version_id async for each in client.memories.versions(memory.memory_id)]

    restored = await client.memories.restore_version(memory.memory_id, version)
    assert (restored.content, restored.user, restored.type) == (memory.content, "ada", "note")
    assert (restored.revision, restored.create_time) == (3, memory.create_time)
    [found] = await client.memories.search(memory.content, limit=1, mode="vector")
    assert (found.content, round(found.similarity or 0, 3)) == (memory.content, 1.0)
    assert await versions_of(client, memory.memory_id) == [
        ("Something else entirely.", VersionEnding.RESTORE),
        (memory.content, VersionEnding.UPDATE),
    ]


async def test_a_restored_version_brings_a_deleted_memory_back(client: AsyncClient) -> None:
    memory = await client.memories.add("Ada likes tea.")
    await client.memories.delete(memory.memory_id)
    [version] = [each.version.version_id async for each in client.memories.versions(memory.memory_id)]
    await client.memories.restore_version(memory.memory_id, version, request_id="once")
    repeated = await client.memories.restore_version(memory.memory_id, version, request_id="once")
    assert (repeated.content, repeated.revision, repeated.delete_time) == ("Ada likes tea.", 3, None)


async def test_a_version_of_another_record_is_not_found(client: AsyncClient) -> None:
    one, other = [await client.memories.add(text) for text in ("one", "other")]
    await client.memories.update(one.memory_id, content="changed")
    [version] = [each.version.version_id async for each in client.memories.versions(one.memory_id)]
    for memory_id, version_id in ((other.memory_id, version), (one.memory_id, "unknown")):
        with pytest.raises(VersionNotFoundError):
            await client.memories.restore_version(memory_id, version_id)
    assert await versions_of(client, other.memory_id) == []


async def test_a_purge_removes_the_versions(client: AsyncClient) -> None:
    memory, other = [await client.memories.add(text) for text in ("one", "other")]
    for each in (memory, other):
        await client.memories.update(each.memory_id, content="changed")
    await client.memories.purge([memory.memory_id])
    assert await versions_of(client, memory.memory_id) == []
    assert await versions_of(client, other.memory_id) == [("other", VersionEnding.UPDATE)]


async def test_pages_of_versions_come_newest_first(client: AsyncClient) -> None:
    memory = await client.memories.add("text 0")
    for number in range(1, 6):
        await client.memories.update(memory.memory_id, content=f"text {number}")
    page = await client.memories.versions_page(memory.memory_id, page_size=2)
    assert [each.memory.content for each in page.versions] == ["text 4", "text 3"]
    rest = await client.memories.versions_page(memory.memory_id, page_size=9, page_token=page.next_page_token)
    assert [each.memory.content for each in rest.versions] == ["text 2", "text 1", "text 0"]
    assert not rest.next_page_token


async def test_only_the_newest_versions_are_kept(tmp_path: Path) -> None:
    async with client_of(tmp_path, history_versions=2) as client:
        memory = await client.memories.add("text 0")
        for number in range(1, 5):
            await client.memories.update(memory.memory_id, content=f"text {number}")
        assert [text for text, _ in await versions_of(client, memory.memory_id)] == ["text 3", "text 2"]


@pytest.mark.parametrize("off", [{"history_versions": 0}, {"history_days": 0.0}], ids=str)
async def test_without_history_nothing_is_kept(tmp_path: Path, off: dict[str, Any]) -> None:
    async with client_of(tmp_path, **off) as client:
        memory = await client.memories.add("text 0")
        await client.memories.update(memory.memory_id, content="text 1")
        assert await versions_of(client, memory.memory_id) == []


async def test_versions_survive_a_restart(tmp_path: Path) -> None:
    async with client_of(tmp_path) as client:
        memory = await client.memories.add("Ada likes tea.")
        await client.memories.update(memory.memory_id, content="Ada likes coffee.")
    async with client_of(tmp_path) as client:
        assert await versions_of(client, memory.memory_id) == [("Ada likes tea.", VersionEnding.UPDATE)]


async def test_a_deleted_document_comes_back_as_the_same_record(client: AsyncClient) -> None:
    await client.documents.put("tea", "Green tea is best at eighty degrees.", {"shelf": 3})
    await client.documents.put("tea", "Green tea is best at seventy degrees.", {"shelf": 4})
    before = await client.documents.get("tea")
    await client.documents.delete("tea")

    deleted, changed = [each async for each in client.documents.versions("tea")]
    assert (deleted.document.content, deleted.version.ending) == (before.content, VersionEnding.DELETE)
    assert (changed.document.metadata, changed.version.ending) == ({"shelf": 3}, VersionEnding.UPDATE)
    await client.documents.restore_version("tea", changed.version.version_id, expected_revision=0)
    restored = await client.documents.get("tea")
    assert (restored.content, restored.metadata) == ("Green tea is best at eighty degrees.", {"shelf": 3})
    assert restored.create_time == before.create_time
    [found] = await client.documents.search("eighty degrees", top_k=1)
    assert found.doc_id == "tea"
    assert len([each async for each in client.documents.versions("tea")]) == 2


async def test_a_version_does_not_replace_what_another_user_stored_under_its_id_since(client: AsyncClient) -> None:
    await client.documents.put("recipe", "Dana bakes bread.", scope=Scope(user="dana"))
    await client.documents.delete("recipe")
    [version] = [each.version.version_id async for each in client.documents.versions("recipe")]
    await client.documents.put("recipe", "Emil cooks soup.", scope=Scope(user="emil"))

    with pytest.raises(InvalidOperationError, match="'recipe' is the record of another user now"):
        await client.documents.restore_version("recipe", version)
    assert (await client.documents.get("recipe")).content == "Emil cooks soup."


async def test_the_versions_of_statements_tell_merges_and_undone_decisions(client: AsyncClient) -> None:
    texts = ("Ada keeps a red boat.", "Ada keeps a blue boat.")
    first, second = [(await client.semantic.add(text, user="ada")).memory for text in texts]
    assert first is not None
    assert second is not None
    merged = await client.conflicts.merge(first.memory_id, second.memory_id)
    await client.conflicts.unmerge(memory_id=merged.memory.memory_id)

    undone, merging = [each async for each in client.semantic.versions(first.memory_id)]
    assert [each.version.ending for each in (undone, merging)] == [VersionEnding.UNDO, VersionEnding.MERGE]
    assert (undone.memory.superseded_by, merging.memory.superseded_by) == (merged.memory.memory_id, "")
    [gone] = [each async for each in client.semantic.versions(merged.memory.memory_id)]
    assert (gone.memory.content, gone.version.ending) == (merged.memory.content, VersionEnding.UNDO)


async def test_a_deleted_statement_comes_back_unless_it_was_saved_again(client: AsyncClient) -> None:
    saved = (await client.semantic.add("Ada lives in Munich.", user="ada", keywords=["home"])).memory
    assert saved is not None
    await client.semantic.delete(saved.memory_id)
    [version] = [each.version.version_id async for each in client.semantic.versions(saved.memory_id)]
    again = (await client.semantic.add("Ada lives in Munich.", user="ada")).memory
    assert again is not None
    with pytest.raises(InvalidOperationError, match="the same statement"):
        await client.semantic.restore_version(saved.memory_id, version)
    await client.semantic.delete(again.memory_id)
    restored = await client.semantic.restore_version(saved.memory_id, version)
    assert (restored.memory_id, restored.keywords) == (saved.memory_id, ("home",))
    [match] = await client.semantic.search("Where does Ada live, in Munich?", user="ada", mode="keyword")
    assert match.memory.memory_id == saved.memory_id


async def test_a_deleted_fact_comes_back_with_a_new_lifetime(client: AsyncClient) -> None:
    name = (("users", "ada"), "seat")
    await client.facts.put(*name, {"row": 12}, metadata={"of": "ada"}, ttl=timedelta(hours=1))
    await client.facts.put(*name, {"row": 14}, ttl=timedelta(hours=1))
    await client.facts.delete(*name)
    assert [(each.fact.value, each.version.ending) async for each in client.facts.versions(*name)] == [
        ({"row": 14}, VersionEnding.DELETE),
        ({"row": 12}, VersionEnding.UPDATE),
    ]
    [_, first] = [each.version async for each in client.facts.versions(*name)]
    restored = await client.facts.restore_version(*name, first.version_id)
    assert (restored.value, restored.metadata, restored.revision) == ({"row": 12}, {"of": "ada"}, 2)
    assert restored.expire_time is not None
    assert first.end_time is not None
    assert restored.expire_time > first.end_time + timedelta(minutes=59)
    assert (await client.facts.get(*name)).value == {"row": 12}


async def test_an_erased_user_has_no_history_either(tmp_path: Path) -> None:
    word = "zqxjvkwpbnghtyuiqz"
    async with client_of(tmp_path, erasure_delay_s=0.05) as client:
        moved = await client.memories.add(f"The word is {word}.", user="ada")
        await client.memories.update(moved.memory_id, content="Nothing of hers.", user="bob")
        gone = await client.memories.add(f"Again {word}.", user="ada")
        await client.memories.purge([gone.memory_id])
        await client.documents.put("note", f"Once more {word}.", scope=Scope(user="ada"))
        await client.documents.delete("note")
        await client.facts.put(("user", "ada"), "word", {"content": word})
        await client.facts.delete(("user", "ada"), "word")
        assert found_in(tmp_path, {"word": word.encode()})

        await client.erasures.run(user="ada")
        assert found_in(tmp_path, {"word": word.encode()}) == {}
        assert [each async for each in client.documents.versions("note")] == []
        assert await versions_of(client, moved.memory_id) == []


async def test_a_filter_erases_the_versions_that_match_though_their_record_no_longer_does(tmp_path: Path) -> None:
    async with client_of(tmp_path, erasure_delay_s=0.05) as client:
        memory = await client.memories.add("The code is 4711.", user="ada")
        await client.memories.update(memory.memory_id, content="The code is secret.")
        await client.memories.update(memory.memory_id, content="There is a code.")
        await client.erasures.run(kind="memory", where=F("content").contains("4711"))
        assert await versions_of(client, memory.memory_id) == [("The code is secret.", VersionEnding.UPDATE)]
        assert (await client.memories.get(memory.memory_id)).content == "There is a code."


async def test_an_archive_takes_the_versions_along(tmp_path: Path) -> None:
    async with client_of(tmp_path / "a") as source, client_of(tmp_path / "b") as target:
        memory = await source.memories.add("Ada likes tea.", user="ada")
        await source.memories.update(memory.memory_id, content="Ada likes coffee.")
        await source.facts.put(("users", "ada"), "seat", {"row": 12})
        await source.facts.delete(("users", "ada"), "seat")
        archive = [line async for line in source.archive.export()]
        assert {str(each.outcome) async for each in target.archive.import_(archive)} == {"created"}

        [kept] = [each async for each in source.memories.versions(memory.memory_id)]
        [came] = [each async for each in target.memories.versions(memory.memory_id)]
        assert came == kept
        [fact] = [each async for each in target.facts.versions(("users", "ada"), "seat")]
        assert fact.fact.value == {"row": 12}
        assert (await target.memories.restore_version(memory.memory_id, came.version.version_id)).content == (
            "Ada likes tea."
        )


async def test_a_caller_with_bounds_sees_only_versions_of_its_own(tmp_path: Path) -> None:
    keys = {
        name: make_key(tmp_path, "writer", "--user", name, "--namespace", f"users.{name}") for name in ("ada", "bob")
    }
    admin = make_key(tmp_path, "admin")
    async with guarded_server(tmp_path) as server:
        address = str(server.server.address)
        async with (
            AsyncClient(address, api_key=admin) as whole,
            AsyncClient(address, api_key=keys["ada"]) as ada,
            AsyncClient(address, api_key=keys["bob"]) as bob,
        ):
            memory = await whole.memories.add("The word of Ada.", user="ada")
            await whole.memories.update(memory.memory_id, content="The word of Bob.", user="bob")
            await whole.memories.update(memory.memory_id, content="Another word of Bob.")
            await ada.facts.put(("users", "ada"), "seat", {"row": 12})
            await ada.facts.delete(("users", "ada"), "seat")

            assert [text for text, _ in await versions_of(ada, memory.memory_id)] == ["The word of Ada."]
            assert [text for text, _ in await versions_of(bob, memory.memory_id)] == ["The word of Bob."]
            assert len([each async for each in ada.facts.versions(("users", "ada"), "seat")]) == 1
            assert [each async for each in bob.facts.versions(("users", "ada"), "seat")] == []
            [foreign] = [each.version async for each in ada.memories.versions(memory.memory_id)]
            with pytest.raises(VersionNotFoundError):
                await bob.memories.restore_version(memory.memory_id, foreign.version_id)
            # The memory is Bob's now.
            with pytest.raises(MnemonError):
                await ada.memories.restore_version(memory.memory_id, foreign.version_id)
            assert (await bob.memories.get(memory.memory_id)).content == "Another word of Bob."
            assert foreign.principal.startswith("key:")


async def test_every_kind_is_read_as_it_was_at_a_moment(client: AsyncClient) -> None:
    memory = await client.memories.add("Ada likes green tea.", user="ada")
    await client.documents.put("tea", "Green tea needs water of eighty degrees.")
    statement = (await client.semantic.add("Ada lives in Munich.", user="ada")).memory
    assert statement is not None
    await client.facts.put(("users", "ada"), "seat", {"content": "Ada sits by the window."})
    await client.timeline.add("trip", "Ada took the night train.", user="ada")
    then = datetime.now(UTC)
    await client.memories.update(memory.memory_id, content="Ada likes black coffee.", user="bob")
    await client.memories.add("Bob likes cocoa.", user="bob")
    await client.documents.delete("tea")
    await client.semantic.delete(statement.memory_id)
    await client.facts.put(("users", "ada"), "seat", {"content": "Ada sits at the aisle."})
    await client.timeline.add("trip", "Ada took the night train back.", user="ada")

    assert (await client.memories.get(memory.memory_id, as_of=then)).content == "Ada likes green tea."
    assert [each.content async for each in client.memories.list(as_of=then)] == ["Ada likes green tea."]
    [found] = await client.memories.search("Does she like green tea?", user="ada", as_of=then)
    assert found.content == "Ada likes green tea."
    assert (await client.documents.get("tea", as_of=then)).content == "Green tea needs water of eighty degrees."
    assert [each.doc_id async for each in client.documents.list(as_of=then)] == ["tea"]
    assert [each.doc_id for each in await client.documents.search("eighty degrees", as_of=then)] == ["tea"]
    assert (await client.semantic.get(statement.memory_id, as_of=then)).content == "Ada lives in Munich."
    assert [each.content async for each in client.semantic.list(user="ada", as_of=then)] == ["Ada lives in Munich."]
    matches = await client.semantic.search("Does Ada live in Munich?", user="ada", as_of=then)
    assert [each.memory.memory_id for each in matches] == [statement.memory_id]
    fact = await client.facts.get(("users", "ada"), "seat", as_of=then)
    assert fact.value == {"content": "Ada sits by the window."}
    [listed] = [each.value async for each in client.facts.list(("users",), subtree=True, as_of=then)]
    assert listed == fact.value
    [hit] = await client.facts.search("window", namespace=("users",), subtree=True, as_of=then)
    assert hit.fact.value == fact.value
    recalled = {each.content for each in await client.recall("Ada", user="ada", namespace=("users", "ada"), as_of=then)}
    assert recalled == {
        "Ada likes green tea.",
        "Ada lives in Munich.",
        "Ada sits by the window.",
        "Ada took the night train.",
    }
    with pytest.raises(MnemonError):
        await client.documents.get("tea")


async def test_a_confidence_of_the_past_is_that_of_the_past(client: AsyncClient) -> None:
    memory = await client.memories.add("Ada likes tea.", decay="contextual")
    soon = datetime.now(UTC) + timedelta(days=7)
    assert round((await client.memories.get(memory.memory_id, as_of=soon)).confidence, 2) == 0.5
    early = datetime.now(UTC) - timedelta(days=1)
    with pytest.raises(MemoryNotFoundError):
        await client.memories.get(memory.memory_id, as_of=early)


async def test_an_answer_about_the_past_says_that_something_is_missing_and_never_what(client: AsyncClient) -> None:
    memory = await client.memories.add("Ada likes tea.", user="ada")
    other = await client.memories.add("Bob likes tea.", user="bob")
    before = datetime.now(UTC)
    await client.memories.update(memory.memory_id, content="Ada likes coffee.")
    between = datetime.now(UTC)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await client.memories.get(memory.memory_id, as_of=before)
    await client.memories.purge([memory.memory_id])
    after = datetime.now(UTC)

    for moment in (before, between):
        with pytest.warns(IncompleteHistoryWarning):
            found = [each.memory_id async for each in client.memories.list(as_of=moment)]
        assert found == [other.memory_id]
        with pytest.raises(MemoryNotFoundError, match="not complete") as refused:
            await client.memories.get(memory.memory_id, as_of=moment)
        with pytest.raises(MemoryNotFoundError) as unknown:
            await client.memories.get("0" * 8, as_of=moment)
        assert str(refused.value).replace(memory.memory_id, "0" * 8) == str(unknown.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [each.memory_id async for each in client.memories.list(as_of=after)] == [other.memory_id]
        assert [each.doc_id async for each in client.documents.list(as_of=before)] == []


async def test_without_history_the_past_is_incomplete(tmp_path: Path) -> None:
    async with client_of(tmp_path, history_versions=0) as client:
        await client.memories.add("Ada likes tea.")
        with pytest.warns(IncompleteHistoryWarning):
            assert len([each async for each in client.memories.list(as_of=datetime.now(UTC))]) == 1


async def test_a_caller_with_bounds_learns_nothing_of_the_past_of_others(tmp_path: Path) -> None:
    keys = [make_key(tmp_path, "writer", "--user", name, "--namespace", f"users.{name}") for name in ("ada", "bob")]
    async with guarded_server(tmp_path) as server:
        address = str(server.server.address)
        async with AsyncClient(address, api_key=keys[0]) as ada, AsyncClient(address, api_key=keys[1]) as bob:
            memory = await ada.memories.add("Ada likes tea.")
            own = await bob.memories.add("Bob likes tea.")
            await ada.facts.put(("users", "ada"), "seat", {"row": 1})
            then = datetime.now(UTC)
            await ada.memories.update(memory.memory_id, content="Ada likes coffee.")
            await ada.memories.purge([memory.memory_id])
            await ada.facts.delete(("users", "ada"), "seat")
            await bob.memories.update(own.memory_id, content="Bob likes cocoa.")
            with warnings.catch_warnings():
                # What is missing of Ada's past is nothing that Bob hears of.
                warnings.simplefilter("error")
                assert [each.content async for each in bob.memories.list(as_of=then)] == ["Bob likes tea."]
                assert [each.content for each in await bob.memories.search("tea", as_of=then)] == ["Bob likes tea."]
                assert [each.key async for each in bob.facts.list(subtree=True, as_of=then)] == []
                assert [each.key async for each in ada.facts.list(subtree=True, as_of=then)] == ["seat"]
            with pytest.warns(IncompleteHistoryWarning):
                assert [each.content async for each in ada.memories.list(as_of=then)] == []
