"""What a caller with bounds is told of statements and decisions does not depend on what others save, decide or try."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.errors import MnemonError, NotFoundError, ThrottledError
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import (
    ConflictPolicy,
    MemoryRef,
    SaveSemantic,
    SemanticFilter,
    SemanticMemory,
    SimilarQuery,
)
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.conflicts.resolution import ConflictResolver
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.store import SemanticSettings, SemanticStore

from tests.support.interference import histories
from tests.support.memory_stores import MovingClock
from tests.support.semantic_stores import NEVER_SLOW
from tests.support.vaults import DIMENSION, open_vault, temporary_vault

WORDS = ("window", "train", "seat", "early", "not")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OTHER = re.compile(r"(sequence|duration_s|next_position)=[0-9.e-]+")
"""Positions in the log and durations: these may depend on others."""

places = st.integers(0, 3)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
actions = st.one_of(
    st.tuples(st.just("save"), texts, st.sampled_from(ConflictPolicy), st.sampled_from([None, 0.1, 0.9])),
    st.tuples(st.just("merge"), places, places),
    st.tuples(st.just("unmerge"), places),
    st.tuples(st.just("delete"), places),
)
steps = st.lists(st.tuples(st.sampled_from(["ada", "bob"]), actions), max_size=12)


@dataclass
class Person:
    """The stores of a vault within the bounds of a user."""

    user: str
    semantic: SemanticStore
    conflicts: ConflictStore
    names: dict[str, str] = field(default_factory=dict)
    """Random ids, and what they are called in answers: by the order in which they were told."""

    async def answer(self, call: Awaitable[Any]) -> str:
        """What a call answers, without random ids and without what may depend on others."""
        try:
            text = repr(await call)
        except MnemonError as error:
            text = repr((type(error).__name__, str(error)))
        named = UUID.sub(lambda found: self.names.setdefault(found[0], f"id {len(self.names)}"), text)
        return OTHER.sub("", named)

    async def statements(self) -> Sequence[str]:
        """The ids of all statements."""
        page = await self.semantic.list(limit=100, show_superseded=True)
        return [memory.memory_id for memory in page.items]

    async def decisions(self) -> Sequence[str]:
        """The ids of all decisions."""
        return [decision.decision_id for decision in (await self.conflicts.list_decisions(limit=100)).items]

    async def act(self, action: tuple[Any, ...]) -> str:
        """Does something with statements of the user's own."""
        match action:
            case "save", text, policy, importance:
                return await self.answer(self.semantic.save(self.save(text, policy, importance)))
            case "merge", one, other:
                return await self._with(
                    self.statements, (one, other), lambda a, b: self.conflicts.merge(ref(a), ref(b))
                )
            case "unmerge", place:
                return await self._with(
                    self.decisions, (place,), lambda decision: self.conflicts.unmerge(decision_id=decision)
                )
            case _:
                return await self._with(self.statements, action[1:], lambda one: self.semantic.delete([one]))

    def save(self, text: str, policy: ConflictPolicy, importance: float | None = None) -> SaveSemantic:
        """A save of the user's."""
        memory = SemanticMemory("", text, scope=Scope(user=self.user), importance=importance)
        return SaveSemantic(memory=memory, conflict_policy=policy)

    async def _with(
        self, ids: Callable[[], Awaitable[Sequence[str]]], wanted: Sequence[int], call: Callable[..., Awaitable[Any]]
    ) -> str:
        known = await ids()
        return await self.answer(call(*(known[place] for place in wanted))) if max(wanted) < len(known) else "none"

    async def everything(self) -> list[str]:
        """All that the user is told."""
        known = await self.statements()
        of_user = SemanticFilter(scope=Scope(user=self.user))
        calls: list[Awaitable[Any]] = [
            self.semantic.list(limit=100),
            self.semantic.list(limit=2, show_superseded=True),
            *(self.semantic.get(one, embedding=True) for one in known),
            *(self.semantic.search(SimilarQuery(text=word, min_similarity=0.0, top_k=9)) for word in WORDS),
            self.semantic.search(SimilarQuery(text="seat", min_similarity=0.1, where=of_user)),
            self.semantic.delete([], of_user, dry_run=True),
            self.conflicts.list_decisions(limit=100),
            *(self.conflicts.list_decisions(memory_id=one, limit=100) for one in known),
            *(self.conflicts.detect(ref(one)) for one in known),
            *(self.conflicts.arbitrate(ref(known[0]), ref(one)) for one in known[1:]),
            *(self.conflicts.merge(ref(known[0]), ref(one), dry_run=True) for one in known[1:]),
            *(self.conflicts.preview(self.save(word, ConflictPolicy.RESOLVE).memory) for word in WORDS),
        ]
        return [await self.answer(call) for call in calls]


def ref(memory_id: str) -> MemoryRef:
    return MemoryRef(memory_id=memory_id)


def named(person: Person, statement: str, own: str, decision: str) -> list[Awaitable[Any]]:
    """Every call that names a statement or a decision."""
    conflicts, semantic = person.conflicts, person.semantic
    return [
        semantic.get(statement),
        semantic.get(statement, embedding=True),
        semantic.delete([statement]),
        semantic.delete([own, statement]),
        semantic.delete([statement], dry_run=True),
        semantic.delete([statement], expected_revision=7),
        conflicts.detect(ref(statement)),
        conflicts.arbitrate(ref(own), ref(statement)),
        conflicts.arbitrate(ref(statement), ref(own)),
        conflicts.merge(ref(own), ref(statement)),
        conflicts.merge(ref(statement), ref(own)),
        conflicts.merge(ref(own), ref(statement), dry_run=True),
        conflicts.unmerge(memory_id=statement),
        conflicts.unmerge(decision_id=decision),
    ]


def person(vault: Vault, batcher: EmbeddingBatcher, user: str, *, capacity: int = 1_000) -> Person:
    rules = RuleStore(vault)
    limits = SemanticSettings(capacity, NEVER_SLOW)
    semantic = SemanticStore(vault, batcher, resolver=ConflictResolver(rules), settings=limits)
    conflicts = ConflictStore(vault, batcher, rules=rules, clock=MovingClock())
    bounds = Bounds.of([user], [])
    bound = BoundVault(vault, bounds)
    return Person(user, semantic.over(bound), conflicts.over(bound, bounds))


@histories(25)
@given(steps)
def test_what_others_decide_changes_nothing_that_a_caller_is_told(steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    clock = MovingClock()
    with temporary_vault(clock) as alone, temporary_vault(clock) as shared:
        asyncio.run(_compare(alone, shared, steps))


async def _compare(alone_vault: Vault, shared_vault: Vault, steps: list[tuple[str, tuple[Any, ...]]]) -> None:
    async with EmbeddingBatcher(HashingEmbedder(DIMENSION)) as batcher:
        alone, shared = person(alone_vault, batcher, "ada"), person(shared_vault, batcher, "ada")
        bob = person(shared_vault, batcher, "bob")
        for user, action in steps:
            if user == "ada":
                assert await alone.act(action) == await shared.act(action)
            else:
                await bob.act(action)
                await _attack(bob, shared)
        assert await alone.everything() == await shared.everything()


async def _attack(bob: Person, ada: Person) -> None:
    """He tries every call on hers, and is told what he is told of what does not exist."""
    missing, nothing = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "01")
    [own, *_] = [*await bob.statements(), nothing]
    decisions = await ada.decisions() or [missing]
    for one in await ada.statements():
        foreign, unknown = (named(bob, each, own, other) for each, other in ((one, decisions[0]), (missing, missing)))
        for call, same in zip(foreign, unknown, strict=True):
            with pytest.raises(NotFoundError) as caught:
                await call
            with pytest.raises(NotFoundError) as expected:
                await same
            assert type(caught.value) is type(expected.value)
            told = str(caught.value).replace(one, missing).replace(decisions[0], missing)
            assert told == str(expected.value)


async def test_the_rules_of_the_tenant_decide_about_the_statements_of_a_caller_with_bounds(tmp_path: Path) -> None:
    embedder = HashingEmbedder(DIMENSION)
    vault = open_vault(tmp_path, MovingClock())
    semantic = {"semantic_threshold": 0.1, "signals": ["semantic"], "required_signals": ["semantic"]}
    async with EmbeddingBatcher(embedder) as batcher:
        bob = person(vault, batcher, "bob")
        conditions = {"users": ["bob"]}
        await RuleStore(vault).register(
            {"name": "bobs", "priority": 5, "conditions": conditions, "detection": semantic}
        )
        for text in ("window seat train", "window seat early"):
            saved = await bob.semantic.save(bob.save(text, ConflictPolicy.RESOLVE))
        assert saved.decision is not None
        assert saved.decision.rule == "bobs"
        assert await bob.decisions() == [saved.decision.decision_id]
    vault.close()
    embedder.close()


async def test_a_full_index_is_full_for_a_caller_with_bounds(tmp_path: Path) -> None:
    embedder = HashingEmbedder(DIMENSION)
    vault = open_vault(tmp_path, MovingClock())
    async with EmbeddingBatcher(embedder) as batcher:
        ada, bob = (person(vault, batcher, user, capacity=3) for user in ("ada", "bob"))
        await ada.semantic.save_many([ada.save(text, ConflictPolicy.IGNORE) for text in ("window", "train")])
        results = await bob.semantic.save_many([bob.save(text, ConflictPolicy.IGNORE) for text in ("seat", "early")])
        assert [isinstance(each, ThrottledError) for each in results] == [False, True]
    vault.close()
    embedder.close()
