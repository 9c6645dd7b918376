"""Statements are saved once, and repeated calls get the first answer."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.conflicts import (
    Conflict,
    Signal,
    SignalType,
)
from mnemon_server.domain.errors import (
    EmbeddingError,
    InvalidArgumentError,
    RequestIdReusedError,
)
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.domain.semantic import (
    ConflictPolicy,
    SavedSemantic,
    SemanticFilter,
    SimilarQuery,
)
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.semantic.resolver import Judged, NewSemantic
from mnemon_server.services.semantic.stored_form import save_plain

from tests.support.gated_embedder import GatedEmbedder
from tests.support.memory_stores import NOON
from tests.support.semantic_stores import OpenedSemantic, contents, open_semantic, statement
from tests.support.vaults import DIMENSION

BOB = Scope(user="bob")


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedSemantic]:
    """A store."""
    async with open_semantic(tmp_path / "vault") as opened:
        yield opened


# Saving


async def test_another_agent_or_project_does_not_make_another_statement(opened: OpenedSemantic) -> None:
    await opened.say("Ada lives in Oslo", scope=Scope(user="ada", agent="a", project="x"))
    assert (await opened.say("Ada lives in Oslo", scope=Scope(user="ada", agent="b", project="y"))).duplicate


async def test_a_deleted_statement_may_be_saved_again(opened: OpenedSemantic) -> None:
    memory = await opened.known("Ada lives in Oslo")
    await opened.store.delete([memory.memory_id])
    assert not (await opened.say("Ada lives in Oslo")).duplicate


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


async def test_the_bounds_of_importance_are_allowed(opened: OpenedSemantic) -> None:
    assert (await opened.known("a", importance=0.0)).importance == 0.0
    assert (await opened.known("b", importance=1)).importance == 1.0


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
