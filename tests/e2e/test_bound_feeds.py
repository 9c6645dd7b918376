"""The change feed of keys that are bound to users or namespaces."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import mnemon

from tests.e2e.test_bounds import People, fill, people
from tests.support.server import WAIT_S

Details = TypeVar("Details")


async def take(watch: mnemon.AsyncWatch, last: str) -> list[mnemon.Change]:
    """The changes of a watch, up to the one of this record."""
    found = []
    async with asyncio.timeout(WAIT_S):
        async for change in watch:
            found.append(change)
            if change.record_id == last:
                break
    return found


def details(changes: Sequence[mnemon.Change], kind: type[Details]) -> list[Details]:
    return [change.details for change in changes if isinstance(change.details, kind)]


def said(changes: Sequence[mnemon.Change]) -> list[tuple[str, str]]:
    return [(change.type, change.record_id) for change in changes]


async def change_everything(each: People, client: mnemon.AsyncClient, name: str) -> None:
    """Creates, changes and deletes records of each kind; the last one is the document "last-NAME"."""
    memory_id = await fill(client, name)
    await client.memories.update(memory_id, content="changed")
    await client.memories.delete(memory_id)
    await client.memories.undelete(memory_id)
    await client.memories.purge(memory_ids=[memory_id])
    await client.facts.put(("users", name, "travel"), "seat", {"row": 13})
    await client.facts.delete(("users", name, "travel"), "seat")
    await client.documents.delete(f"note-{name}")
    await each.admin.timeline.delete(f"trip-{name}")
    saved = [await client.semantic.add(f"{name} likes {when} trains.", user=name) for when in ("early", "late")]
    first, second = [one.memory.memory_id for one in saved if one.memory]
    merged = await client.conflicts.merge(first, second)
    await client.conflicts.unmerge(memory_id=merged.memory.memory_id)
    await client.semantic.delete(first)
    await client.documents.put(f"last-{name}", "The last one.")


async def test_a_watch_shows_the_changes_of_the_users_of_the_key_deletions_included(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        async with (
            each.ada.changes.watch(full=True) as adas,
            each.ada.changes.watch() as without_records,
            each.bob.changes.watch(full=True) as bobs,
        ):
            await asyncio.gather(
                change_everything(each, each.ada, "ada"),
                change_everything(each, each.bob, "bob"),
                each.admin.documents.put("common", "Of no one."),
            )
            live = await take(adas, "last-ada")
            assert said(await take(without_records, "last-ada")) == said(live)
            assert len(live) == len(await take(bobs, "last-bob"))
        kinds = {change.type for change in live}
        assert {"knowledge:deleted", "memory:deleted", "memory:purged", "memory:fact:deleted"} < kinds
        assert {"memory:episodic:saved", "memory:episodic:pruned"} < kinds
        assert {"memory:semantic:saved", "memory:semantic:pruned"} < kinds
        assert {"memory:conflict:merged", "memory:conflict:reverted"} < kinds
        assert {change.scope.user for change in live} == {"ada", ""}
        assert {tuple(each.namespace) for each in details(live, mnemon.FactChange)} == {("users", "ada", "travel")}
        assert "bob" not in str(live)
        assert {each.segment_count for each in details(live, mnemon.EpisodicSaved)} == {0}
        assert {change.request_id for change in live} == {""}
        assert all([change.request_id async for change in each.admin.changes.list(types=["memory:updated"])])
        # The log says the same as the stream, from any place on.
        listed = [change async for change in each.ada.changes.list()]
        assert said(listed) == said(live)
        async with each.ada.changes.watch("earliest") as watch:
            assert said(await take(watch, "last-ada")) == said(live)
        pages = [await each.ada.changes.list_page(page_size=2)]
        while not pages[-1].caught_up:
            pages.append(await each.ada.changes.list_page(pages[-1].cursor, page_size=2))
        assert said([change for page in pages for change in page.changes]) == said(live)
        own = [change async for change in each.ada.changes.list(ids=["last-bob", "last-ada"])]
        assert said(own) == [("knowledge:indexed", "last-ada")]
        assert [change async for change in each.ada.changes.list(scope=mnemon.Scope(user="bob"))] == []


async def test_a_record_that_went_to_another_user_is_shown_to_that_one_alone(tmp_path: Path) -> None:
    async with people(tmp_path) as each:
        memory = await each.ada.remember("Likes trains.", type="preference")
        await each.admin.memories.update(memory.memory_id, user="bob", content="Likes ships.")
        [created] = [change async for change in each.ada.changes.list(full=True)]
        assert (created.type, created.record) == ("memory:created", None)
        [moved] = [change async for change in each.bob.changes.list(full=True)]
        assert moved.type == "memory:updated"
        assert isinstance(moved.record, mnemon.Memory)
        assert moved.record.content == "Likes ships."
