"""Exported and imported records give the same answers: a whole vault, a namespace, a scope, and never twice."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mnemon import (
    AsyncClient,
    EmbeddingModelMismatchError,
    ImportResult,
    IncompleteArchiveError,
    InvalidArgumentError,
    RecordKind,
    Scope,
)

from tests.support.full_vault import LONG, answers, differences, fill, until_bridged
from tests.support.server import eventually, whole_server

Lines = list[dict[str, Any]]


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[AsyncClient]:
    async with whole_server(folder, **settings) as server, AsyncClient(str(server.server.address)) as client:
        yield client


async def exported(client: AsyncClient, **selection: Any) -> Lines:
    """The lines of an archive, as a file holds them."""
    return [json.loads(json.dumps(line)) async for line in client.archive.export(**selection)]


async def outcomes(client: AsyncClient, archive: Iterable[Any], **terms: Any) -> Counter[str]:
    results = [result async for result in client.archive.import_(archive, **terms)]
    return Counter(result.error.message if result.error else str(result.outcome) for result in results)


def records(lines: Lines) -> list[Mapping[str, Any]]:
    return lines[1:-1]


@pytest.mark.parametrize("backend", ["local", "in_memory"])
async def test_a_whole_vault_comes_back_with_the_same_answers(tmp_path: Path, backend: str) -> None:
    settings = {"knowledge_store_backend": backend}
    async with opened(tmp_path / "a", **settings) as source, opened(tmp_path / "b", **settings) as target:
        await fill(source)
        before = await answers(source)
        archive = await exported(source)
        kinds = Counter(line["kind"] for line in records(archive))
        assert set(kinds) == set(RecordKind)
        assert archive[0]["counts"] == archive[-1]["summary"]["counts"] == dict(kinds)

        assert await outcomes(target, archive) == {"created": len(records(archive))}

        assert list(differences(before, await answers(target))) == []
        again = await exported(target)
        assert sorted(map(json.dumps, records(again))) == sorted(map(json.dumps, records(archive)))


async def test_importing_the_same_archive_again_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        await fill(source)
        archive = await exported(source)
        await outcomes(target, archive)
        known = [change.to_dict() async for change in target.changes.list()]

        assert await outcomes(target, archive) == {"unchanged": len(records(archive))}
        assert await outcomes(target, archive, on_conflict="refuse") == {"unchanged": len(records(archive))}

        assert [change.to_dict() async for change in target.changes.list()] == known
        assert await outcomes(source, archive) == {"unchanged": len(records(archive))}


async def test_the_bridge_does_not_handle_imported_events_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        for number in range(3):
            await source.timeline.add("task", f"Ada must do thing number {number}.", user="ada", importance=0.9)

        async def all_are_routed() -> bool:
            return (await source.bridge.status()).routed_count == 3

        await eventually(all_are_routed)
        [first, *_] = [each async for each in source.semantic.list()]
        # A statement that a user deleted must not come back by itself.
        await source.semantic.delete_many([first.memory_id])
        archive = await exported(source)

        await outcomes(target, archive)
        await until_bridged(target)
        status = await target.bridge.status()
        assert (status.routed_count, status.linked_count, status.skipped_counts) == (0, 0, {"imported": 3})
        assert len([each async for each in target.semantic.list()]) == 2


async def test_the_bridge_handles_imported_events_on_request(tmp_path: Path) -> None:
    async with opened(tmp_path / "a", bridge_enabled=False) as source, opened(tmp_path / "b") as target:
        await source.timeline.add("task", "Ada must renew her passport.", user="ada", importance=0.9)
        assert await outcomes(target, await exported(source), bridge_events=True) == {"created": 1}

        async def is_routed() -> bool:
            return (await target.bridge.status()).routed_count == 1

        await eventually(is_routed)
        assert [each.content async for each in target.semantic.list()] == ["Ada must renew her passport."]


async def test_a_namespace_comes_back_without_its_neighbours(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        await fill(source)
        await source.facts.put(("user", "adam"), "home", {"content": "Adam lives in Lyon."})
        below = await exported(source, namespace=("user", "ada"))
        exact = await exported(source, namespace=("user", "ada"), exact_namespace=True)
        assert [line["fields"]["namespace"] for line in records(below)] == [
            "user.ada.",
            "user.ada.work.",
            *["user.ada."] * 2,
        ]
        assert [line["fields"]["namespace"] for line in records(exact)] == ["user.ada."] * 3

        assert await outcomes(target, below) == {"created": 4}

        for mode in ("hybrid", "vector", "keyword"):
            asked: dict[str, Any] = {"namespace": ("user", "ada"), "subtree": True, "mode": mode, "limit": 50}
            wanted, found = [await each.facts.search("Where does Ada live?", **asked) for each in (source, target)]
            assert [(match.key, match.similarity) for match in found] == [
                (match.key, pytest.approx(match.similarity, abs=1e-6)) for match in wanted
            ]
            # A word's score depends on the average passage length, and so on the rest of the vault.
            assert [match.score for match in found] == pytest.approx([match.score for match in wanted], abs=0.01)
        assert [labels async for labels in target.facts.list_namespaces()] == [("user", "ada"), ("user", "ada", "work")]


async def test_a_scope_is_exported_for_every_kind_that_has_one(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source:
        await fill(source)
        archive = await exported(source, scope=Scope(user="ada"))
        assert {line.get("scope", line.get("event", {}).get("scope"))["user"] for line in records(archive)} == {"ada"}
        assert {line["kind"] for line in records(archive)} == set(RecordKind) - {"fact", "rule"}
        only = await exported(source, kinds=["memory"], scope=Scope(user="ada"))
        assert {line["kind"] for line in records(only)} == {"memory"}
        with pytest.raises(InvalidArgumentError, match="must not name RULE with a scope"):
            await exported(source, kinds=["rule"], scope=Scope(user="ada"))


async def test_vectors_left_out_of_an_archive_are_computed_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        await source.documents.put("d", "Ada prefers window seats.")
        await source.facts.put(("user", "ada"), "tea", {"content": "Ada likes tea."})
        await source.semantic.add("Ada lives in Berlin.", user="ada")
        archive = await exported(source, vectors=False)
        assert "embedding_model" not in archive[0]
        assert not any("passages" in line for line in records(archive))
        assert await outcomes(target, archive) == {"created": 3}
        assert list(differences(await answers_to("Ada", source), await answers_to("Ada", target))) == []


async def answers_to(query: str, client: AsyncClient) -> dict[str, Any]:
    return {
        "documents": (await client.documents.search(query, mode="vector")).to_dict(),
        "facts": (await client.facts.search(query, subtree=True, mode="vector")).to_dict(),
        "statements": (await client.semantic.search(query, min_similarity=0.0)).to_dict(),
    }


async def test_vectors_of_another_model_are_refused_or_computed_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        await source.remember("Ada likes green tea.", user="ada")
        archive = await exported(source)
        archive[0]["embedding_model"] |= {"name": "another", "dimension": 32}
        with pytest.raises(EmbeddingModelMismatchError, match=r"made by another@1/fp32/32.*embed_anew"):
            await outcomes(target, archive)
        assert [memory async for memory in target.memories.list()] == []
        assert await outcomes(target, archive, embed_anew=True) == {"created": 1}
        [match] = await target.memories.search("Ada likes green tea.", mode="vector")
        assert match.similarity == pytest.approx(1.0, abs=1e-6)


async def test_records_changed_during_an_export_come_again_at_its_end(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        # More than fits into the buffers between a server and a client that does not read.
        for number in range(100):
            await source.remember(
                f"Ada knows thing number {number}.", user="ada", metadata={"said": LONG * 15, "meant": LONG * 15}
            )
        memories = [memory async for memory in source.memories.list()]
        archive = []
        async for line in source.archive.export():
            archive.append(line)
            if len(archive) == 2:
                await source.memories.update(memories[0].memory_id, content="Ada changed her mind.")
                await source.remember("Ada knows something new.", user="ada")
        summary = archive[-1]["summary"]
        # The changed memory with its earlier version, and the new one.
        assert (summary["changed_count"], summary["removed_count"]) == (3, 0)
        # A new record may already have come with a later page.
        assert summary["counts"]["memory"] in (102, 103)
        await outcomes(target, archive)
        ours = [memory.content async for memory in source.memories.list()]
        assert [memory.content async for memory in target.memories.list()] == ours


async def gather(stream: AsyncIterator[ImportResult], results: list[ImportResult]) -> None:
    """Keeps what a stream returned before it failed."""
    async for result in stream:
        results.append(result)  # noqa: PERF401 - they are kept as they come


async def test_a_truncated_archive_is_imported_up_to_the_cut(tmp_path: Path) -> None:
    async with opened(tmp_path / "a") as source, opened(tmp_path / "b") as target:
        for number in range(5):
            await source.remember(f"Ada knows thing number {number}.", user="ada")
        text = "\n".join(json.dumps(line) for line in await exported(source))
        half = text[: len(text) * 2 // 3].splitlines()
        results: list[ImportResult] = []
        with pytest.raises(IncompleteArchiveError, match="cut off behind line"):
            await gather(target.archive.import_(half), results)
        assert [result.outcome for result in results[:-1]] == ["created"] * (len(results) - 1)
        assert results[-1].error is not None and "is not JSON" in results[-1].error.message
        assert len([memory async for memory in target.memories.list()]) == len(results) - 1 > 0
        assert (await outcomes(target, text.splitlines()))["unchanged"] == len(results) - 1
        assert len([memory async for memory in target.memories.list()]) == 5
