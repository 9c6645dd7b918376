"""What a caller with bounds may not write costs the server neither its embedding model nor a judge."""

from pathlib import Path
from typing import Any

import mnemon
import pytest

from tests.e2e.test_bounds import People, people
from tests.e2e.test_judge import judging, settings_for
from tests.support.tool_endpoints import tool_server

TEXT = "Bob sits by the window."
BOBS = "3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11"
OF_BOB = mnemon.Scope(user="bob")


async def seconds_embedded(at: People) -> float:
    """For how long the model has run for the tenant."""
    return float((await at.admin.tenants.usage()).embedding_seconds)


async def foreign_saves(at: People) -> list[Any]:
    """Ada's attempts to save Bob's records, each with the expected error."""
    bobs = await at.bob.remember(TEXT, type="preference", memory_id=BOBS)
    await at.bob.documents.put("bobs-note", TEXT)
    await at.bob.facts.put(("users", "bob"), "seat", {"row": 12})
    denied, exists, missing = mnemon.PermissionDeniedError, mnemon.AlreadyExistsError, mnemon.NotFoundError
    ada, fact = at.ada, (("users", "bob"), "seat", {"row": 13})
    return [
        (denied, lambda: ada.documents.put("new", "Ada's words.", scope=OF_BOB)),
        (denied, lambda: ada.documents.put("bobs-note", "Ada's words.")),
        (missing, lambda: ada.documents.put("bobs-note", "Ada's words.", expected_revision=1)),
        (missing, lambda: ada.documents.update("bobs-note", content="Ada's words.")),
        (denied, lambda: ada.remember("Ada's words.", type="preference", user="bob")),
        (exists, lambda: ada.remember("Ada's words.", type="preference", memory_id=bobs.memory_id)),
        (missing, lambda: ada.memories.update(bobs.memory_id, content="Ada's words.")),
        (denied, lambda: ada.semantic.add("Ada's words.", user="bob")),
        (denied, lambda: ada.semantic.add("Ada's words.", user="bob", conflict_policy="resolve")),
        (denied, lambda: ada.facts.put(*fact)),
        (missing, lambda: ada.facts.put(*fact, mode="update")),
        (missing, lambda: ada.facts.put(*fact, expected_revision=1)),
    ]


async def test_a_save_of_what_is_anothers_is_refused_before_anything_is_embedded_or_judged(tmp_path: Path) -> None:
    with tool_server(judging()) as served:
        async with people(tmp_path, **settings_for(served.port)) as at:
            await at.bob.semantic.add(TEXT, user="bob", conflict_policy="resolve")
            saves = await foreign_saves(at)
            before = await seconds_embedded(at)
            for expected, save in saves:
                with pytest.raises(expected):
                    await save()
            results = [each async for each in at.ada.memories.add_many(["Ada's words."] * 3, scope=OF_BOB)]
            assert [type(each.error) for each in results] == [mnemon.PermissionDeniedError] * 3
            assert await seconds_embedded(at) == before
            assert served.received == []
            # What is her own is embedded.
            await at.ada.documents.put("new", "Ada's words.")
            assert await seconds_embedded(at) > before


async def test_a_repeated_save_gets_its_answer_after_the_record_was_given_to_another(tmp_path: Path) -> None:
    async with people(tmp_path) as at:
        first = await at.ada.documents.put("note", "Ada's words.", request_id="once")
        await at.ada.remember("Ada's.", type="preference", memory_id=BOBS, request_id="memory-once")
        await at.ada.memories.update(BOBS, content="Hers.", request_id="update-once")
        await at.admin.documents.update("note", scope={"user": "bob"})
        await at.admin.memories.update(BOBS, user="bob")
        again = await at.ada.documents.put("note", "Ada's words.", request_id="once")
        assert (again.revision, again.replayed) == (first.revision, True)
        repeated = [
            await at.ada.remember("Ada's.", type="preference", memory_id=BOBS, request_id="memory-once"),
            await at.ada.memories.update(BOBS, content="Hers.", request_id="update-once"),
        ]
        # They were done, and there is nothing to show any more.
        assert [each.memory_id for each in repeated] == ["", ""]
