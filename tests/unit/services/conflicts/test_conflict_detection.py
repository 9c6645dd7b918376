"""The index finds the same conflicts as a comparison with every statement."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import Conflict, DetectionConfig, Relation, RelationType, SignalType
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.conflicts.detection import RELATIONS_MAX, find_conflicts
from mnemon_server.services.conflicts.signals import RELATION_CERTAIN
from mnemon_server.services.semantic.stored_form import to_document, to_semantic

from tests.support.memory_stores import NOON
from tests.support.statements import detect_all
from tests.support.vaults import DIMENSION, temporary_vault

USERS = itertools.count()
WORDS = ("berlin", "paris", "lives", "works", "likes", "tea", "coffee", "in", "at", "自転車に")


@pytest.fixture(scope="module")
def vault() -> Iterator[Vault]:
    """A vault for all examples. Each example has its own users."""
    with temporary_vault(dimension=DIMENSION) as vault:
        yield vault


def _embedding(cosine: float, axis: int) -> tuple[float, ...]:
    """A unit vector with this cosine to the first axis. The rest of its length is along another axis."""
    vector = np.zeros(DIMENSION, np.float64)
    vector[0], vector[axis] = cosine, math.sqrt(1.0 - cosine * cosine)
    return tuple(vector.astype(np.float32).tolist())


SHARES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]) | st.floats(0, 1, width=32)
STATEMENTS = st.builds(
    SemanticMemory,
    memory_id=st.uuids().map(str),
    content=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join),
    importance=st.none() | SHARES,
    keywords=st.lists(st.sampled_from(["Berlin", "home", "job"]), max_size=3, unique=True).map(tuple),
    create_time=st.integers(-700, 700).map(lambda seconds: NOON + timedelta(seconds=seconds)),
    embedding=st.builds(_embedding, SHARES, st.integers(1, 5)),
    superseded_by=st.sampled_from(["", "", "", "something"]),
)
CONFIGS = st.builds(
    DetectionConfig,
    semantic_threshold=SHARES,
    keyword_threshold=SHARES,
    time_window=st.integers(1, 900).map(lambda seconds: timedelta(seconds=seconds)),
    importance_delta=SHARES.filter(lambda share: share < 1.0),
    signals=st.sets(st.sampled_from(SignalType), min_size=1).map(frozenset),
    required_signals=st.sets(st.sampled_from(SignalType), min_size=1).map(frozenset),
)


def store(vault: Vault, *memories: SemanticMemory) -> None:
    """Stores statements in the form that the records use."""
    futures = []
    for memory in memories:
        passages = [PassageInput(0, len(memory.content), np.array(memory.embedding, np.float32))]
        write = DocumentWrite(document=to_document(memory), passages=passages)
        futures.append(vault.collection(SEMANTIC).put_document(write))
    for future in futures:
        future.result()


def _decides(conflict: Conflict, config: DetectionConfig) -> bool:
    """Whether a required signal fired, or any if none of those is enabled; and the relation, if required."""
    required = config.required_signals & config.signals or config.signals
    scores = {signal.type: signal.score for signal in conflict.signals}
    related = scores.get(SignalType.RELATION, 0.0)
    if SignalType.RELATION in required and SignalType.RELATION not in scores:
        return False
    alone = related > RELATION_CERTAIN or required == {SignalType.RELATION}
    return any(type_ in required for type_ in scores if type_ is not SignalType.RELATION or alone)


def through_index(
    vault: Vault, candidate: SemanticMemory, config: DetectionConfig, limit: int, *, deciding: bool = False
) -> tuple[list[Conflict], int]:
    """The conflicts that the index finds, and their total number."""
    found = find_conflicts(vault.collection(SEMANTIC), candidate, config, limit=limit, deciding=deciding)
    return [opponent.conflict for opponent in found.opponents], found.total_count


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=st.lists(st.tuples(STATEMENTS, st.booleans()), max_size=12, unique_by=lambda item: item[0].memory_id),
    candidate=STATEMENTS,
    config=CONFIGS,
    limit=st.integers(1, 4),
)
def test_the_index_finds_exactly_what_comparing_everything_finds(
    vault: Vault,
    stored: list[tuple[SemanticMemory, bool]],
    candidate: SemanticMemory,
    config: DetectionConfig,
    limit: int,
) -> None:
    user = f"user {next(USERS)}"
    ours, theirs = Scope(user=user), Scope(user=f"not {user}")
    everything = [replace(memory, scope=theirs if foreign else ours) for memory, foreign in stored]
    candidate = replace(candidate, scope=ours)
    store(vault, *everything)
    visible = [memory for memory in everything if not memory.superseded_by]
    expected = detect_all(candidate, visible, config)
    assert through_index(vault, candidate, config, 100) == (expected, len(expected))
    assert through_index(vault, candidate, config, limit) == (expected[:limit], len(expected))
    decided = [conflict for conflict in expected if _decides(conflict, config)]
    assert through_index(vault, candidate, config, limit, deciding=True) == (decided[:limit], len(decided))


def test_the_relation_signal_considers_only_the_most_similar_statements(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    similarities = [0.4 + place / 200 for place in range(RELATIONS_MAX + 8)]
    stored = [
        SemanticMemory(
            f"{scope.user} {place}", f"Ada drinks milk {place}", scope=scope, embedding=_embedding(cosine, 1)
        )
        for place, cosine in enumerate(similarities)
    ]
    store(vault, *(replace(memory, create_time=NOON) for memory in stored))
    candidate = SemanticMemory("", "Milk", scope=scope, create_time=NOON, embedding=_embedding(1.0, 1))
    config = DetectionConfig(signals=frozenset({SignalType.RELATION}), relation_threshold=0.0)
    conflicts, total = through_index(vault, candidate, config, 1_000)
    assert total == RELATIONS_MAX
    assert {conflict.memory_id for conflict in conflicts} == {memory.memory_id for memory in stored[-RELATIONS_MAX:]}


def test_what_was_judged_counts_only_for_the_revision_that_was_judged(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    stored = SemanticMemory(f"{scope.user} known", "Milk", scope=scope, create_time=NOON, embedding=_embedding(0.9, 1))
    store(vault, stored)
    candidate = replace(stored, memory_id="", embedding=_embedding(1.0, 1))
    config = DetectionConfig(signals=frozenset({SignalType.RELATION}))
    [document] = vault.collection(SEMANTIC).get_documents([stored.memory_id])
    assert document is not None
    unrelated = Relation(RelationType.UNRELATED, 0.9, 0.1, judge="scripted")
    for revision, count in ((document.revision, 0), (document.revision + 1, 1)):
        judged = {stored.memory_id: (revision, unrelated)}
        found = find_conflicts(vault.collection(SEMANTIC), candidate, config, limit=10, judged=judged)
        assert found.total_count == len(found.opponents) == count


def test_a_stored_statement_does_not_conflict_with_itself(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    memory = SemanticMemory("self " + scope.user, "Ada lives in Berlin", scope=scope, embedding=_embedding(1.0, 1))
    store(vault, replace(memory, create_time=NOON))
    assert through_index(vault, replace(memory, create_time=NOON), DetectionConfig(), 10) == ([], 0)
    other = replace(memory, memory_id="another id", create_time=NOON)
    assert through_index(vault, other, DetectionConfig(), 10)[1] == 1


def test_rounding_differences_of_a_similarity_decide_nothing(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    config = DetectionConfig(signals=frozenset({SignalType.SEMANTIC}), semantic_threshold=0.8)
    for number, cosine in enumerate([0.8, 0.8 - 3e-8, 0.8 + 3e-8, 0.800001, 0.9]):
        embedding = _embedding(cosine, number + 1)
        store(vault, SemanticMemory(f"{scope.user} {number}", "x", scope=scope, embedding=embedding, create_time=NOON))
    candidate = SemanticMemory("", "y", scope=scope, embedding=_embedding(1.0, 1), create_time=NOON)
    found, count = through_index(vault, candidate, config, 10)
    assert [conflict.memory_id for conflict in found] == [f"{scope.user} 4", f"{scope.user} 3"]
    assert count == 2


def test_similarities_rounded_by_the_index_are_compared_exactly(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    config = DetectionConfig(signals=frozenset({SignalType.SEMANTIC}), semantic_threshold=0.8)
    rng = np.random.default_rng(7)
    [ours] = _directions(rng, 1)
    memories = []
    for number, other in enumerate(_directions(rng, 200)):
        across = other - (other @ ours) * ours
        # Above the threshold by the smallest difference that counts, give or take some rounding.
        cosine = 0.8 + 1e-7 + rng.uniform(-1e-7, 1e-7)
        vector = cosine * ours + math.sqrt(1 - cosine * cosine) * across / np.linalg.norm(across)
        embedding = tuple(vector.astype(np.float32).tolist())
        memory = SemanticMemory(f"{scope.user} {number}", "x", scope=scope, embedding=embedding, create_time=NOON)
        memories.append(memory)
    store(vault, *memories)
    embedding = tuple(ours.astype(np.float32).tolist())
    candidate = SemanticMemory("", "y", scope=scope, embedding=embedding, create_time=NOON)
    expected = detect_all(candidate, memories, config)
    assert 50 < len(expected) < 150
    assert through_index(vault, candidate, config, 200) == (expected, len(expected))
    alike = [conflict.memory_id for conflict in expected[:1]]
    assert [conflict.memory_id for conflict in through_index(vault, candidate, config, 1)[0]] == alike


@pytest.mark.parametrize(
    ("signal", "fires"),
    [(SignalType.KEYWORD, False), (SignalType.TIME, True), (SignalType.IMPORTANCE, False)],
)
def test_the_bound_itself_counts_only_for_time(vault: Vault, signal: SignalType, fires: bool) -> None:  # noqa: FBT001
    scope = Scope(user=f"user {next(USERS)}")
    at_all_bounds = SemanticMemory(
        f"{scope.user} m",
        "Ada",
        scope=scope,
        keywords=("a", "b"),
        importance=0.5,
        create_time=NOON - timedelta(minutes=5),
        embedding=_embedding(0.0, 1),
    )
    store(vault, at_all_bounds)
    candidate = replace(
        at_all_bounds,
        memory_id="",
        keywords=("b", "c"),
        importance=0.9,
        create_time=NOON,
        embedding=_embedding(1.0, 1),
    )
    only = DetectionConfig(signals=frozenset({signal}))
    assert through_index(vault, candidate, only, 10)[1] == fires
    assert bool(detect_all(candidate, [at_all_bounds], only)) == fires
    required = DetectionConfig(required_signals=frozenset({signal}))
    assert through_index(vault, candidate, required, 10, deciding=True)[1] == fires


def _directions(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    vectors = rng.standard_normal((count, DIMENSION))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_any_number_of_equally_severe_conflicts_come_in_the_order_of_saving(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    for number in range(130):
        text = "Ada drinks tea"
        memory = SemanticMemory(
            f"{scope.user} {number}", text, scope=scope, embedding=_embedding(0.9, 1), create_time=NOON
        )
        store(vault, memory)
    candidate = SemanticMemory("", "Ada drinks", scope=scope, embedding=_embedding(1.0, 1), create_time=NOON)
    found, count = through_index(vault, candidate, DetectionConfig(), 3)
    assert [conflict.memory_id for conflict in found] == [f"{scope.user} {number}" for number in range(3)]
    assert count == 130
    assert found[0].signals[1].keywords == ("ada", "drinks")


def test_the_stored_form_of_a_statement_gives_the_same_comparison(vault: Vault) -> None:
    scope = Scope(user=f"user {next(USERS)}")
    memory = SemanticMemory(
        f"{scope.user} m", "Ada lives", scope=scope, embedding=_embedding(0.3, 2), create_time=NOON, importance=0.1
    )
    store(vault, memory)
    [document] = vault.collection(SEMANTIC).get_documents([memory.memory_id], vectors=True)
    assert document is not None
    assert to_semantic(document).embedding == memory.embedding
