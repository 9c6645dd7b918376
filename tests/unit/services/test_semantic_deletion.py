"""Deleting a statement also deletes the statements that it superseded and the decisions about any of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DECISIONS
from mnemon_server.domain.errors import InvalidArgumentError, MemoryNotFoundError, MnemonError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.domain.semantic import SemanticFilter, SemanticMemory

from tests.support.memory_stores import fields_of
from tests.support.semantic_stores import ADA, OpenedSemantic, contents, details, open_semantic, statement, supersede
from tests.support.vaults import DIMENSION

BOB = Scope(user="bob")


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedSemantic]:
    """A store."""
    async with open_semantic(tmp_path / "vault") as opened:
        yield opened


async def test_deleting_a_statement_deletes_what_it_superseded_and_the_decisions_about_it(
    opened: OpenedSemantic,
) -> None:
    oslo, chess = await opened.known("Ada lives in Oslo"), await opened.known("Ada plays chess")
    berlin = await supersede(opened, SemanticMemory("", "Ada lives in Berlin", scope=ADA), by=oslo.memory_id)
    rome = await supersede(opened, SemanticMemory("", "Ada lives in Rome", scope=ADA), by=berlin.memory_id)
    draughts = await supersede(opened, SemanticMemory("", "Ada plays draughts", scope=ADA), by=chess.memory_id)
    named = [oslo.memory_id, "nobody"]
    for dry_run in (True, False):
        with pytest.raises(MemoryNotFoundError, match="'nobody'"):
            await opened.store.delete(named, dry_run=dry_run)
    counted = await opened.store.delete(named, allow_missing=True, dry_run=True)
    assert (counted.deleted_count, counted.superseded_count) == (1, 2)
    assert opened.changes(ChangeType.SEMANTIC_PRUNED) == []
    before = len(opened.changes())

    deleted = await opened.store.delete(named, allow_missing=True)
    assert (deleted.deleted_count, deleted.superseded_count) == (1, 2)
    assert [(receipt.id, receipt.outcome, receipt.revision) for receipt in deleted.receipts] == [
        (oslo.memory_id, WriteOutcome.DELETED, oslo.revision),
        ("nobody", WriteOutcome.MISSING, 0),
    ]
    assert (counted.receipts, counted.commit_time) == ((), None)

    left = await opened.store.list(limit=10, show_superseded=True)
    assert contents(left) == ["Ada plays chess", "Ada plays draughts"]
    decisions = opened.vault.collection(DECISIONS).list_documents(RecordFilter(), limit=10)
    assert [decision.fields["existing_id"] for _, decision in decisions] == [draughts.memory_id]
    pruned = opened.changes()[before:]
    assert {change.record_id for change in pruned} == {oslo.memory_id, berlin.memory_id, rome.memory_id}
    assert {change.type for change in pruned} == {ChangeType.SEMANTIC_PRUNED}
    assert [details(change) for change in pruned] == [{"prune_reason": "deleted"}] * 3
    assert len({change.commit for change in pruned}) == 1


async def test_deleting_a_superseded_statement_leaves_its_successor(opened: OpenedSemantic) -> None:
    oslo = await opened.known("Ada lives in Oslo")
    berlin = await supersede(opened, SemanticMemory("", "Ada lives in Berlin", scope=ADA), by=oslo.memory_id)
    deleted = await opened.store.delete([berlin.memory_id])
    assert (deleted.deleted_count, deleted.superseded_count) == (1, 0)
    assert contents(await opened.store.list(limit=10, show_superseded=True)) == ["Ada lives in Oslo"]
    assert opened.vault.collection(DECISIONS).count_documents(RecordFilter()) == 0


async def test_a_filter_deletes_superseded_statements_as_well(opened: OpenedSemantic) -> None:
    oslo = await opened.known("Ada lives in Oslo")
    await supersede(opened, SemanticMemory("", "Ada lives in Berlin", scope=ADA), by=oslo.memory_id)
    await supersede(opened, SemanticMemory("", "Bob lives in Rome", scope=BOB), by=oslo.memory_id)
    await opened.say("Bob plays chess", scope=BOB)
    where = SemanticFilter(scope=ADA)
    for dry_run in (True, False):
        deleted = await opened.store.delete([], where, dry_run=dry_run)
        assert (deleted.deleted_count, deleted.superseded_count) == (2, 1)
    assert contents(await opened.store.list(limit=10, show_superseded=True)) == ["Bob plays chess"]


async def test_more_can_be_deleted_than_is_read_at_once(tmp_path: Path) -> None:
    async with open_semantic(tmp_path / "vault") as opened:
        requests = [statement(f"statement {i}", embedding=[1.0] * DIMENSION) for i in range(1_203)]
        assert not any(isinstance(result, MnemonError) for result in await opened.store.save_many(requests))
        await opened.say("Bob plays chess", scope=BOB)
        assert (await opened.store.delete([], SemanticFilter(scope=ADA))).deleted_count == 1_203
        assert contents(await opened.store.list(limit=10)) == ["Bob plays chess"]


async def test_errors_in_a_deletion_are_named(opened: OpenedSemantic) -> None:
    cases = [
        ([], None, "filter"),
        ([], SemanticFilter(), "filter"),
        (["a"], SemanticFilter(scope=ADA), "filter"),
        (["a", ""], None, "memory_ids[1]"),
        (["a"] * 1_001, None, "memory_ids"),
        ([], SemanticFilter(scope=Scope(user="u" * 257)), "filter.scope.user"),
    ]
    await opened.say("Ada lives in Oslo")
    for ids, where, field in cases:
        with pytest.raises(InvalidArgumentError) as refusal:
            await opened.store.delete(ids, where)
        assert fields_of(refusal.value) == [field]
        assert len((await opened.store.list(limit=10)).items) == 1
