"""Statements are saved once and come back as they were given."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import (
    Conflict,
    Signal,
    SignalType,
)
from mnemon_server.domain.errors import (
    EmbeddingError,
    InvalidArgumentError,
    MemoryNotFoundError,
    RequestIdReusedError,
)
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.domain.semantic import (
    ConflictPolicy,
    SavedSemantic,
    SemanticFilter,
    SemanticMemory,
    SimilarQuery,
)
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.semantic.resolver import Judged, NewSemantic
from mnemon_server.services.semantic.stored_form import save_plain

from tests.support.gated_embedder import GatedEmbedder
from tests.support.memory_stores import NOON, fields_of
from tests.support.semantic_stores import ADA, OpenedSemantic, contents, open_semantic, statement, supersede
from tests.support.vaults import DIMENSION

BOB = Scope(user="bob")
FULL = {
    "summary": "Python",
    "scope": Scope(user="ada", household="h", persona="engineer", agent="claude", project="apollo"),
    "importance": 0.25,
    "keywords": ("Python", "language", "Python"),
    "source": "conversation",
    "metadata": {"topic": "code", "since": datetime(2020, 1, 1), "rank": 5, "tags": ["a", "b"]},
    "create_time": datetime(2025, 12, 24, 18, 30, tzinfo=UTC),
}
"""Everything that a caller may say of a statement."""


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedSemantic]:
    """A store."""
    async with open_semantic(tmp_path / "vault") as opened:
        yield opened


# Saving


async def test_a_statement_comes_back_as_it_was_given(opened: OpenedSemantic) -> None:
    saved = await opened.say("Ada prefers Python", **FULL)
    memory = saved.memory
    assert memory is not None and saved.receipt is not None
    assert uuid.UUID(memory.memory_id).version == 4
    assert (saved.receipt.id, saved.receipt.outcome) == (memory.memory_id, WriteOutcome.CREATED)
    assert (saved.receipt.commit_time, saved.receipt.replayed) == (NOON, False)
    assert saved.receipt.sequence == opened.vault.collection(SEMANTIC).stats().sequence
    assert memory == SemanticMemory(
        memory_id=memory.memory_id,
        content="Ada prefers Python",
        summary="Python",
        scope=Scope("ada", "h", "engineer", "claude", "apollo"),
        importance=0.25,
        keywords=("Python", "language", "Python"),
        source="conversation",
        metadata={"topic": "code", "since": datetime(2020, 1, 1, tzinfo=UTC), "rank": 5, "tags": ("a", "b")},
        create_time=datetime(2025, 12, 24, 18, 30, tzinfo=UTC),
        update_time=NOON,
        revision=1,
    )
    assert await opened.store.get(memory.memory_id) == memory


async def test_missing_fields_are_unknown_or_set_by_the_server(opened: OpenedSemantic) -> None:
    said = SemanticMemory(
        "mine", "Ada lives in Oslo", scope=ADA, revision=7, superseded_by="x", merged_from=("y",), update_time=NOON
    )
    saved = await opened.store.save(replace(statement("-"), memory=said))
    assert saved.memory is not None and saved.memory.memory_id != "mine"
    assert await opened.store.get(saved.memory.memory_id) == SemanticMemory(
        saved.memory.memory_id, "Ada lives in Oslo", scope=ADA, create_time=NOON, update_time=NOON, revision=1
    )


async def test_a_save_is_in_the_log_and_a_duplicate_is_not(opened: OpenedSemantic) -> None:
    memory = await opened.known("Ada lives in Oslo")
    await opened.say("Ada lives in Oslo")
    [change] = opened.changes()
    assert (change.type, change.record_id, change.revision) == (ChangeType.SEMANTIC_SAVED, memory.memory_id, 1)
    assert (change.scope, change.details) == (ADA, "")


@pytest.mark.parametrize("again", ["Ada lives in Oslo", "  Ada\tlives \n in Oslo ", "Ａda lives in Oslo"])
async def test_the_same_statement_is_kept_once(opened: OpenedSemantic, again: str) -> None:
    first = await opened.known("Ada lives in Oslo", importance=0.5)
    opened.clock.pass_hours(1)
    saved = await opened.say(again, importance=0.9, keywords=("other",))
    assert saved.duplicate
    assert saved.memory == first
    assert saved.receipt is not None
    assert (saved.receipt.id, saved.receipt.outcome) == (first.memory_id, WriteOutcome.UNCHANGED)
    assert len((await opened.store.list(limit=10)).memories) == 1


@pytest.mark.parametrize(
    ("content", "scope"),
    [
        ("Ada lives in Oslo", BOB),
        ("Ada lives in Oslo", Scope(user="ada", persona="engineer")),
        ("Ada lives in Oslo", Scope(user="ada", household="h")),
        ("ada lives in Oslo", ADA),
        ("Ada lives in Oslo.", ADA),
    ],
)
async def test_another_user_household_persona_or_wording_makes_another_statement(
    opened: OpenedSemantic, content: str, scope: Scope
) -> None:
    await opened.say("Ada lives in Oslo")
    assert not (await opened.say(content, scope=scope)).duplicate
    assert len((await opened.store.list(limit=10)).memories) == 2


async def test_another_agent_or_project_does_not_make_another_statement(opened: OpenedSemantic) -> None:
    await opened.say("Ada lives in Oslo", scope=Scope(user="ada", agent="a", project="x"))
    assert (await opened.say("Ada lives in Oslo", scope=Scope(user="ada", agent="b", project="y"))).duplicate


async def test_a_superseded_statement_may_be_saved_again(opened: OpenedSemantic) -> None:
    berlin = SemanticMemory("", "Ada lives in Berlin", scope=ADA)
    await supersede(opened, berlin, by="oslo")
    assert not (await opened.say("Ada lives in Berlin")).duplicate
    assert (await opened.say("Ada lives in Berlin")).duplicate


async def test_a_deleted_statement_may_be_saved_again(opened: OpenedSemantic) -> None:
    memory = await opened.known("Ada lives in Oslo")
    await opened.store.delete([memory.memory_id])
    assert not (await opened.say("Ada lives in Oslo")).duplicate


async def test_a_given_vector_is_normalised(opened: OpenedSemantic) -> None:
    given = [0.0] * DIMENSION
    given[3], given[5] = 3e30, -4e30
    memory = await opened.known("Ada lives in Oslo", embedding=None)
    told = await opened.store.save(statement("Ada lives in Rome", embedding=given))
    assert told.memory is not None and told.memory.embedding is None
    stored = (await opened.store.get(told.memory.memory_id, embedding=True)).embedding
    assert stored is not None
    assert np.flatnonzero(stored).tolist() == [3, 5]
    assert (stored[3], stored[5]) == pytest.approx((0.6, -0.8))
    own = (await opened.store.get(memory.memory_id, embedding=True)).embedding
    assert own == pytest.approx(HashingEmbedder(DIMENSION).embed(["Ada lives in Oslo"])[0], abs=1e-6)


async def test_the_vector_of_a_long_statement_is_the_mean_of_its_passages(tmp_path: Path) -> None:
    embedder = HashingEmbedder(DIMENSION, passage_words=8)
    text = " ".join(f"word{i}" for i in range(40))
    spans = embedder.split(text)
    total = embedder.embed([text[span.start : span.end] for span in spans]).astype(np.float64).sum(axis=0)
    assert len(spans) > 3
    async with open_semantic(tmp_path, embedder=embedder) as opened:
        memory = await opened.known(text)
        stored = (await opened.store.get(memory.memory_id, embedding=True)).embedding
    assert stored == pytest.approx(total / np.linalg.norm(total), abs=1e-6)


async def test_errors_in_a_statement_are_named(opened: OpenedSemantic) -> None:
    cases = [
        ({"content": " \n"}, "memory.content"),
        ({"content": "x" * (1 << 20) + "x"}, "memory.content"),
        ({"summary": "x" * 65_537}, "memory.summary"),
        ({"scope": Scope()}, "memory.scope.user"),
        ({"scope": Scope(user="ada", persona="p" * 257)}, "memory.scope.persona"),
        ({"importance": 1.1}, "memory.importance"),
        ({"importance": -0.1}, "memory.importance"),
        ({"importance": float("nan")}, "memory.importance"),
        ({"keywords": ("k",) * 257}, "memory.keywords"),
        ({"keywords": ("k", "k" * 257)}, "memory.keywords[1]"),
        ({"keywords": ("k", "")}, "memory.keywords[1]"),
        ({"source": "s" * 257}, "memory.source"),
        ({"metadata": {"2nd": 1}}, "memory.metadata"),
        ({"metadata": {"none": None}}, "memory.metadata.none"),
        ({"embedding": [1.0] * (DIMENSION - 1)}, "embedding"),
        ({"embedding": [0.0] * DIMENSION}, "embedding"),
        ({"embedding": [float("nan")] * DIMENSION}, "embedding"),
        ({"embedding": [float("inf")] * DIMENSION}, "embedding"),
        ({"request_id": "r" * 129}, "request_id"),
    ]
    for changes, field in cases:
        with pytest.raises(InvalidArgumentError) as refusal:
            await opened.store.save(statement(**{"content": "Ada lives in Oslo"} | changes))
        assert fields_of(refusal.value) == [field]
        assert opened.vault.collection(SEMANTIC).stats().document_count == 0


async def test_all_errors_are_named_at_once(opened: OpenedSemantic) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        await opened.store.save(statement("", scope=Scope(), importance=2.0))
    assert fields_of(refusal.value) == ["memory.content", "memory.scope.user", "memory.importance"]


async def test_the_bounds_of_importance_are_allowed(opened: OpenedSemantic) -> None:
    assert (await opened.known("a", importance=0.0)).importance == 0.0
    assert (await opened.known("b", importance=1)).importance == 1.0


async def test_one_bad_statement_of_many_fails_alone(opened: OpenedSemantic) -> None:
    requests = [
        statement("Ada lives in Oslo"),
        statement(""),
        statement("Ada lives in Oslo"),
        statement("Ada plays chess", embedding=[0.0] * DIMENSION),
        statement("Ada plays go"),
    ]
    first, blank, again, zero, last = await opened.store.save_many(requests)
    assert isinstance(first, SavedSemantic) and isinstance(again, SavedSemantic) and isinstance(last, SavedSemantic)
    assert isinstance(blank, InvalidArgumentError) and isinstance(zero, InvalidArgumentError)
    assert (first.duplicate, again.duplicate, again.memory) == (False, True, first.memory)
    assert contents(await opened.store.list(limit=10)) == ["Ada lives in Oslo", "Ada plays go"]


async def test_statements_that_cannot_be_embedded_do_not_fail_others(tmp_path: Path) -> None:
    async with open_semantic(tmp_path, embedder=GatedEmbedder()) as opened:
        given = [1.0] * DIMENSION
        poison, fine = await opened.store.save_many([statement("poison"), statement("Oslo", embedding=given)])
        assert isinstance(poison, EmbeddingError)
        assert isinstance(fine, SavedSemantic)
        with pytest.raises(EmbeddingError):
            await opened.say("more poison")
        assert contents(await opened.store.list(limit=10)) == ["Oslo"]


# Repeated requests


async def test_a_repeated_save_returns_the_statement_in_its_current_state(opened: OpenedSemantic) -> None:
    first = await opened.say("Ada lives in Oslo", request_id="r1")
    opened.clock.pass_hours(1)
    assert first.receipt is not None
    again = await opened.say("Ada lives in Oslo", request_id="r1")
    assert again == replace(first, receipt=replace(first.receipt, replayed=True))
    assert len(opened.changes()) == 1
    await opened.store.delete([first.receipt.id])
    gone = await opened.say("Ada lives in Oslo", request_id="r1")
    assert (gone.memory, gone.receipt) == (None, again.receipt)


async def test_a_repeated_duplicate_is_a_duplicate(opened: OpenedSemantic) -> None:
    first = await opened.known("Ada lives in Oslo")
    for replayed in (False, True):
        saved = await opened.say(" Ada lives in Oslo", request_id="r1")
        assert (saved.memory, saved.duplicate) == (first, True)
        assert saved.receipt is not None
        assert (saved.receipt.outcome, saved.receipt.replayed) == (WriteOutcome.UNCHANGED, replayed)


@pytest.mark.parametrize(
    "change",
    [
        {"content": "Ada lives in Rome"},
        {"importance": 0.5},
        {"keywords": ("k",)},
        {"metadata": {"a": 1}},
        {"scope": BOB},
        {"create_time": NOON},
        {"embedding": [1.0] * DIMENSION},
        {"summary": "s"},
        {"source": "user"},
    ],
)
async def test_a_request_id_belongs_to_one_request(opened: OpenedSemantic, change: dict[str, Any]) -> None:
    await opened.say("Ada lives in Oslo", request_id="r1")
    with pytest.raises(RequestIdReusedError):
        await opened.store.save(statement(**{"content": "Ada lives in Oslo", "request_id": "r1"} | change))


# Conflicts


class Detecting:
    """Stands in for the conflict resolver: saves everything and finds one conflict each time."""

    has_judge = False
    judge_failed_count = 0

    async def judge(self, new: NewSemantic) -> Judged:
        """See Resolver."""
        raise AssertionError(f"no judge is asked about {new.memory.memory_id}")

    def save(self, tx: VaultTransaction, write: NewSemantic) -> SavedSemantic:
        """See Resolver."""
        saved = save_plain(tx, write)
        signals = (
            Signal(SignalType.KEYWORD, 0.75, 0.5, keywords=("secret",)),
            Signal(SignalType.TIME, 0.5, 300.0, time_delta=timedelta(seconds=150)),
            Signal(SignalType.IMPORTANCE, 1.0, 0.4, importance_delta=0.6),
        )
        return replace(saved, conflicts=(Conflict(f"{write.policy}-{write.rule}", signals, 2.25),))


async def test_conflicts_are_settled_within_the_transaction_and_returned_again_to_a_repeated_request(
    tmp_path: Path,
) -> None:
    async with open_semantic(tmp_path, resolver=Detecting()) as opened:
        request = replace(
            statement("Ada lives in Oslo", request_id="r1"), conflict_policy=ConflictPolicy.DETECT, rule="home"
        )
        first = await opened.store.save(request)
        [conflict] = first.conflicts
        assert (conflict.memory_id, conflict.severity) == ("detect-home", 2.25)
        again = await opened.store.save(request)
        [told] = again.conflicts
        # The stored answer holds no text.
        assert told.signals == (replace(conflict.signals[0], keywords=()), *conflict.signals[1:])
        assert again.memory == first.memory
        with pytest.raises(RequestIdReusedError):
            await opened.store.save(replace(request, rule="other"))
        ignored = await opened.store.save(statement("Ada plays chess"))
        assert ignored.conflicts == ()


# Reading


async def test_reading_a_missing_statement_is_an_error(opened: OpenedSemantic) -> None:
    with pytest.raises(MemoryNotFoundError, match="no statement has the id 'nobody'"):
        await opened.store.get("nobody")
    with pytest.raises(MemoryNotFoundError):
        await opened.store.get("nobody", embedding=True)
    with pytest.raises(InvalidArgumentError) as refusal:
        await opened.store.get("")
    assert fields_of(refusal.value) == ["memory_id"]


async def test_a_superseded_statement_is_found_by_its_id_and_on_request(opened: OpenedSemantic) -> None:
    oslo = await opened.known("Ada lives in Oslo")
    berlin = await supersede(opened, SemanticMemory("", "Ada lives in Berlin", scope=ADA), by=oslo.memory_id)
    found = await opened.store.get(berlin.memory_id)
    assert (found.content, found.superseded_by) == ("Ada lives in Berlin", oslo.memory_id)
    assert contents(await opened.store.list(limit=10)) == ["Ada lives in Oslo"]
    everything = await opened.store.list(limit=10, show_superseded=True)
    assert contents(everything) == ["Ada lives in Oslo", "Ada lives in Berlin"]
    answer = await opened.store.search(SimilarQuery(text="Ada lives in Berlin", min_similarity=0.0))
    assert contents(answer.results) == ["Ada lives in Oslo"]


async def test_pages_neither_repeat_nor_skip(opened: OpenedSemantic) -> None:
    for i in range(7):
        await opened.say(f"statement {i}", scope=ADA if i % 3 else BOB)
    seen: list[str] = []
    position: int | None = 0
    while position is not None:
        page = await opened.store.list(SemanticFilter(scope=ADA), after=position, limit=3)
        seen += contents(page)
        position = page.next_position
    assert seen == [f"statement {i}" for i in (1, 2, 4, 5)]


async def test_a_page_ends_when_its_text_fills_a_message(opened: OpenedSemantic) -> None:
    for i in range(8):
        await opened.say(f"{i} " + "x" * (900 << 10), embedding=[1.0] * DIMENSION)
    seen: list[str] = []
    after: int | None = 0
    while after is not None:
        page = await opened.store.list(after=after, limit=100)
        assert sum(map(len, contents(page))) <= 3 << 20
        seen += [text[0] for text in contents(page)]
        after = page.next_position
    assert seen == list("01234567")


async def test_a_filter_names_the_fields_of_a_statement(opened: OpenedSemantic) -> None:
    cases = [
        ("memory_id", Operator.EXISTS, True, "abc"),
        ("user", Operator.EQ, "bob", "c"),
        ("household", Operator.EQ, "h", "a"),
        ("content", Operator.CONTAINS, "alpha", "a"),
        ("summary", Operator.EQ, "first", "a"),
        ("source", Operator.IN, "user", "b"),
        ("importance", Operator.GTE, 0.5, "b"),
        ("importance", Operator.EXISTS, False, "ac"),
        ("keywords", Operator.CONTAINS, "Sun", "a"),
        ("keywords", Operator.EXISTS, False, "bc"),
        ("create_time", Operator.LT, datetime(2026, 1, 1), "a"),
        ("update_time", Operator.EQ, NOON, "abc"),
        ("metadata.rank", Operator.GT, 1, "b"),
    ]
    winter = datetime(2025, 12, 31, 23, 59)
    scope = Scope(user="ada", household="h")
    await opened.say("a alpha", scope=scope, summary="first", keywords=("Sun", "moon"), create_time=winter)
    await opened.say("b beta", source="user", importance=0.5, metadata={"rank": 2})
    await opened.say("c gamma", scope=BOB)
    for field, operator, value, expected in cases:
        page = await opened.store.list(SemanticFilter(expression=Condition(field, operator, (value,))), limit=10)
        assert "".join(text[0] for text in contents(page)) == expected


async def test_a_filter_by_an_unknown_field_is_refused(opened: OpenedSemantic) -> None:
    where = SemanticFilter(expression=Condition("content_hash", Operator.EQ, ("x",)))
    for call in (
        opened.store.list(where, limit=1),
        opened.store.search(SimilarQuery(text="x", where=where)),
        opened.store.delete([], where),
    ):
        with pytest.raises(InvalidArgumentError, match="is not a field; the fields are agent, content, create_time"):
            await call
