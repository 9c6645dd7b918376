"""The scenarios of conflict detection, arbitration and merging, each over a real channel against a real server."""

import math
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import decisions_pb2, rules_pb2, semantic_pb2

from tests.support.server import Connection, whole_server

DIMENSION = 64
NOON = 1_780_000_000
HOUR = 3600

SEMANTIC, KEYWORD = decisions_pb2.SIGNAL_TYPE_SEMANTIC, decisions_pb2.SIGNAL_TYPE_KEYWORD
TIME, IMPORTANCE = decisions_pb2.SIGNAL_TYPE_TIME, decisions_pb2.SIGNAL_TYPE_IMPORTANCE
RELATION = decisions_pb2.SIGNAL_TYPE_RELATION
KEEP, MERGE = decisions_pb2.ARBITRATION_ACTION_KEEP, decisions_pb2.ARBITRATION_ACTION_MERGE
REJECT = decisions_pb2.ARBITRATION_ACTION_REJECT
CANDIDATE, EXISTING = decisions_pb2.ARBITRATION_SIDE_CANDIDATE, decisions_pb2.ARBITRATION_SIDE_EXISTING
NEITHER = decisions_pb2.ARBITRATION_SIDE_UNSPECIFIED
RESOLVE = semantic_pb2.CONFLICT_POLICY_RESOLVE

NO_PRIORITIES: dict[str, Any] = {"priority_importance": False, "priority_recency": False, "priority_source": False}


def at(seconds: float) -> Timestamp:
    """The time this long after noon of a fixed day."""
    return Timestamp(seconds=NOON + math.floor(seconds), nanos=round(seconds % 1 * 1e6) * 1000)


def vector(cosine: float) -> list[float]:
    """A vector with this cosine to `vector(1)`."""
    return [cosine, math.sqrt(1.0 - cosine * cosine), *[0.0] * (DIMENSION - 2)]


def statement(content: str, user: str = "ada", **fields: Any) -> semantic_pb2.SemanticMemory:
    """A statement of a user."""
    return semantic_pb2.SemanticMemory(content=content, scope={"user": user}, **fields)


def given(content: str, **fields: Any) -> pb.MemoryReference:
    """A statement that is not stored yet."""
    return pb.MemoryReference(memory=statement(content, **fields))


class Statements:
    """The statements of a server and their conflicts, as a client sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def save(self, content: str, *, rule: str = "", policy: int = 0, **fields: Any) -> Any:
        """Stores a statement. Returns the whole answer."""
        embedding = fields.pop("embedding", ())
        request = semantic_pb2.SaveSemanticMemoryRequest(
            memory=statement(content, **fields), embedding=embedding, rule=rule, conflict_policy=policy
        )
        return await self._connection.semantic.SaveSemanticMemory(request)

    async def known(self, content: str, **fields: Any) -> str:
        """Stores a statement. Returns its id."""
        return str((await self.save(content, **fields)).memory.memory_id)

    async def visible(self) -> set[str]:
        """The ids of all statements that were not superseded."""
        listed = await self._connection.semantic.ListSemanticMemories(semantic_pb2.ListSemanticMemoriesRequest())
        return {memory.memory_id for memory in listed.memories}

    async def get(self, memory_id: str) -> semantic_pb2.SemanticMemory:
        """The statement with this id."""
        request = semantic_pb2.GetSemanticMemoryRequest(memory_id=memory_id)
        return (await self._connection.semantic.GetSemanticMemory(request)).memory

    async def signals(self, signal: int, candidate: pb.MemoryReference, **detection: Any) -> dict[str, Any]:
        """The signals of one type for a candidate, by the id of the stored statement."""
        config = decisions_pb2.DetectionConfig(signals=[signal], **detection)
        request = pb.DetectConflictsRequest(candidate=candidate, detection=config)
        answer = await self._connection.conflicts.DetectConflicts(request)
        assert answer.total_count == len(answer.conflicts)
        for conflict in answer.conflicts:
            assert [fired.type for fired in conflict.signals] == [signal]
            assert conflict.severity == conflict.signals[0].score
        return {conflict.memory_id: conflict.signals[0] for conflict in answer.conflicts}

    async def arbitrate(self, candidate: pb.MemoryReference, existing: pb.MemoryReference, **config: Any) -> Any:
        """The decision between two statements."""
        request = pb.ArbitrateConflictRequest(
            candidate=candidate, existing=existing, arbitration=decisions_pb2.ArbitrationConfig(**config)
        )
        return (await self._connection.conflicts.ArbitrateConflict(request)).arbitration

    async def merge(self, first: pb.MemoryReference, second: pb.MemoryReference, **config: Any) -> Any:
        """The result of merging two statements."""
        request = pb.MergeMemoriesRequest(first=first, second=second, merge=decisions_pb2.MergeConfig(**config))
        return await self._connection.conflicts.MergeMemories(request)

    async def register(self, name: str, **fields: Any) -> None:
        """Registers a rule."""
        rule = rules_pb2.MergeRuleConfig(name=name, **fields)
        await self._connection.rules.RegisterRule(rules_pb2.RegisterRuleRequest(rule=rule))


@pytest_asyncio.fixture
async def statements(tmp_path: Path) -> AsyncIterator[Statements]:
    """A server on an empty folder."""
    async with whole_server(tmp_path) as connected:
        yield Statements(connected)


# Memory Conflict Detection


async def test_semantic_similarity_signal(statements: Statements) -> None:
    near = await statements.known("Ada lives in Rome", embedding=vector(0.96))
    far = await statements.known("Ada works at home", embedding=vector(0.75))
    await statements.known("Bob lives in Rome", user="bob", embedding=vector(1.0))
    candidate = given("Ada has moved to Oslo", embedding=vector(1.0))
    fired = await statements.signals(SEMANTIC, candidate)
    assert set(fired) == {near}
    assert (fired[near].score, fired[near].bound) == (pytest.approx(0.96), 0.8)
    assert set(await statements.signals(SEMANTIC, candidate, semantic_threshold=0.7)) == {near, far}
    assert await statements.signals(SEMANTIC, candidate, semantic_threshold=0.97) == {}


async def test_keyword_overlap_signal(statements: Statements) -> None:
    much = await statements.known("first", keywords=["Tea", "milk", "cup"])
    half = await statements.known("second", keywords=["TEA", "rice"])
    worded = await statements.known("Tea and sugar, no milk")
    candidate = given("third", keywords=["tea", "Milk", "sugar", "spoon"])
    fired = await statements.signals(KEYWORD, candidate)
    # 2 of 3; 1 of 2 is the threshold, and not above it; 3 of 3, the words of its content without stop words
    assert {memory_id: signal.score for memory_id, signal in fired.items()} == {
        much: pytest.approx(2 / 3),
        worded: pytest.approx(1.0),
    }
    assert list(fired[much].keywords) == ["milk", "tea"]
    assert fired[much].bound == 0.5
    assert set(await statements.signals(KEYWORD, candidate, keyword_threshold=0.49)) == {much, half, worded}
    cat = await statements.known("The cat is on the table.")
    assert cat not in await statements.signals(KEYWORD, given("The milk is on the shelf."), keyword_threshold=0.0)


async def test_time_window_signal(statements: Statements) -> None:
    now = await statements.known("one", create_time=at(0))
    before = await statements.known("two", create_time=at(-300))
    after = await statements.known("three", create_time=at(75))
    outside = await statements.known("four", create_time=at(300.000001))
    fired = await statements.signals(TIME, given("five", create_time=at(0)))
    # 1 - delta / 5 minutes
    assert {memory_id: (signal.score, signal.time_delta.ToSeconds()) for memory_id, signal in fired.items()} == {
        now: (1.0, 0),
        before: (0.0, 300),
        after: (0.75, 75),
    }
    assert fired[after].bound == 300.0
    wider = await statements.signals(TIME, given("five", create_time=at(0)), time_window={"seconds": 600})
    assert set(wider) == {now, before, after, outside}
    assert wider[after].bound == 600.0


async def test_importance_difference_signal(statements: Statements) -> None:
    little = await statements.known("one", importance=0.2)
    equal = await statements.known("two", importance=0.9)
    edge = await statements.known("three", importance=0.5)
    await statements.known("four")
    fired = await statements.signals(IMPORTANCE, given("five", importance=0.9))
    assert set(fired) == {little}
    assert fired[little].importance_delta == pytest.approx(0.7)
    assert (fired[little].score, fired[little].bound) == (1.0, 0.4)  # 0.7 / 0.6, at most 1
    finer = await statements.signals(IMPORTANCE, given("five", importance=0.9), importance_delta=0.2)
    assert {memory_id: signal.score for memory_id, signal in finer.items()} == {
        little: pytest.approx(0.7 / 0.8),
        edge: pytest.approx(0.4 / 0.8),
    }
    assert equal not in finer


# Memory Conflict Arbitration


async def test_importance_based_arbitration(statements: Statements) -> None:
    more, less = given("Rome", importance=0.8, create_time=at(0)), given("Oslo", importance=0.5, create_time=at(HOUR))
    for pair, winner, loser in (((more, less), CANDIDATE, EXISTING), ((less, more), EXISTING, CANDIDATE)):
        result = await statements.arbitrate(*pair)
        assert (result.action, result.strategy) == (KEEP, decisions_pb2.ARBITRATION_STRATEGY_IMPORTANCE)
        assert (result.winner, result.loser) == (winner, loser)
        assert result.confidence == pytest.approx(0.6)  # 2 * 0.3
        assert "0.8" in result.reason and "0.5" in result.reason
    disabled = await statements.arbitrate(more, less, priority_importance=False)
    assert (disabled.strategy, disabled.winner) == (decisions_pb2.ARBITRATION_STRATEGY_RECENCY, EXISTING)


async def test_recency_based_arbitration(statements: Statements) -> None:
    new, old = given("Rome", create_time=at(6 * HOUR)), given("Oslo", create_time=at(0), source="user")
    for pair, winner, loser in (((new, old), CANDIDATE, EXISTING), ((old, new), EXISTING, CANDIDATE)):
        result = await statements.arbitrate(*pair)
        assert (result.action, result.strategy) == (KEEP, decisions_pb2.ARBITRATION_STRATEGY_RECENCY)
        assert (result.winner, result.loser) == (winner, loser)
        assert result.confidence == pytest.approx(0.25)  # 6 of 24 hours
        assert "6 hours" in result.reason
    disabled = await statements.arbitrate(new, old, priority_recency=False)
    assert (disabled.strategy, disabled.winner) == (decisions_pb2.ARBITRATION_STRATEGY_SOURCE, EXISTING)


async def test_source_based_arbitration(statements: Statements) -> None:
    order = ("user", "conversation", "skill", "system", "inferred")
    for better, worse in combinations(order, 2):
        one, other = (given("Rome", source=source, create_time=at(0)) for source in (better, worse))
        for pair, winner, loser in (((one, other), CANDIDATE, EXISTING), ((other, one), EXISTING, CANDIDATE)):
            result = await statements.arbitrate(*pair)
            assert (result.action, result.strategy) == (KEEP, decisions_pb2.ARBITRATION_STRATEGY_SOURCE)
            assert (result.winner, result.loser, result.confidence) == (winner, loser, 0.7)
            assert better in result.reason and worse in result.reason


async def test_multi_factor_scoring(statements: Statements) -> None:
    now = at(0)
    one = given("Rome", importance=0.9, source="user", create_time=now, embedding=vector(1.0))
    other = given("Oslo", importance=0.1, source="inferred", create_time=now, embedding=vector(0.8))
    # 0.36 + 0.3 + 0.2 + 0.08 = 0.94 against 0.04 + 0.3 + 0.04 + 0.08 = 0.46
    result = await statements.arbitrate(one, other, **NO_PRIORITIES)
    assert (result.action, result.strategy) == (KEEP, decisions_pb2.ARBITRATION_STRATEGY_MULTI_FACTOR)
    assert (result.winner, result.loser) == (CANDIDATE, EXISTING)
    assert result.confidence == pytest.approx(0.74)  # 0.5 + 0.48 / 2
    assert "0.94" in result.reason and "0.46" in result.reason and "0.48" in result.reason
    weighed = [(factor.type, factor.weight, factor.candidate, factor.existing) for factor in result.factors]
    assert weighed == [
        (decisions_pb2.FACTOR_TYPE_IMPORTANCE, 0.4, 0.9, 0.1),
        (decisions_pb2.FACTOR_TYPE_RECENCY, 0.3, 1.0, 1.0),
        (decisions_pb2.FACTOR_TYPE_SOURCE, 0.2, 1.0, pytest.approx(0.2)),
        (decisions_pb2.FACTOR_TYPE_SEMANTIC, 0.1, pytest.approx(0.8), pytest.approx(0.8)),
    ]
    close = await statements.arbitrate(one, other, **NO_PRIORITIES, merge_threshold=0.5)
    assert (close.action, close.winner, close.confidence) == (MERGE, NEITHER, 0.6)
    apart = await statements.arbitrate(one, other, **NO_PRIORITIES, merge_threshold=0.5, allow_merge=False)
    assert (apart.action, apart.winner) == (KEEP, CANDIDATE)


async def test_default_strategy_fallback(statements: Statements) -> None:
    existing = await statements.known("Ada lives in Rome", create_time=at(0), embedding=vector(1.0))
    for name, strategy, action, winner in (
        ("keep-candidate", decisions_pb2.DEFAULT_STRATEGY_KEEP_CANDIDATE, KEEP, CANDIDATE),
        ("keep-existing", decisions_pb2.DEFAULT_STRATEGY_KEEP_EXISTING, KEEP, EXISTING),
        ("reject", decisions_pb2.DEFAULT_STRATEGY_REJECT, REJECT, NEITHER),
    ):
        config = {"allow_merge": False, "default_strategy": strategy}
        candidate = given("Ada lives in Oslo", create_time=at(0), embedding=vector(0.9))
        result = await statements.arbitrate(candidate, pb.MemoryReference(memory_id=existing), **config)
        assert (result.action, result.strategy) == (action, decisions_pb2.ARBITRATION_STRATEGY_DEFAULT)
        assert (result.winner, result.confidence) == (winner, 0.5)
        assert name in result.reason
        await statements.register(name, arbitration=config, conditions={"users": ["nobody"]})

    async def save(rule: str) -> Any:
        fields = {"create_time": at(0), "embedding": vector(0.9)}
        return await statements.save("Ada lives in Oslo", rule=rule, policy=RESOLVE, **fields)

    rejected = await save("reject")
    assert not rejected.HasField("memory") and rejected.decision.arbitration.action == REJECT
    assert await statements.visible() == {existing}
    refused = await save("keep-existing")
    assert refused.memory.memory_id == existing
    assert await statements.visible() == {existing}
    taken = await save("keep-candidate")
    assert taken.memory.content == "Ada lives in Oslo"
    assert await statements.visible() == {taken.memory.memory_id}
    assert (await statements.get(existing)).superseded_by == taken.memory.memory_id


async def test_multiple_conflict_resolution(statements: Statements) -> None:
    alike = await statements.known("Ada drinks tea", embedding=vector(0.9), create_time=at(-HOUR))
    faintly = await statements.known("Ada reads much", embedding=vector(0.82), create_time=at(-2 * HOUR))
    both = await statements.known("Ada has coffee", embedding=vector(0.85), create_time=at(-120))
    answer = await statements.save(
        "Ada prefers juice", policy=RESOLVE, embedding=vector(1.0), create_time=at(0), keywords=["juice"]
    )
    decision = answer.decision
    # 0.85 and 1 - 2 / 5 are together more than 0.9, and more than 0.82
    assert (decision.existing_id, decision.conflict_count) == (both, 3)
    scores = {signal.type: signal.score for signal in decision.signals}
    assert scores.pop(RELATION) > 0.4
    assert scores == {SEMANTIC: pytest.approx(0.85), TIME: pytest.approx(0.6)}
    assert (decision.arbitration.action, decision.arbitration.winner) == (KEEP, CANDIDATE)
    assert decision.arbitration.strategy == decisions_pb2.ARBITRATION_STRATEGY_RECENCY
    assert await statements.visible() == {alike, faintly, answer.memory.memory_id}


# Memory Merging


async def test_content_merging_strategies(statements: Statements) -> None:
    first = given("Ada drinks green tea. She has a cat.", keywords=["tea", "cat"])
    second = given("Ada drinks green tea at noon. She has a cat.", keywords=["Cat", "noon", "tea"])
    strange = given("Bob eats rice.")

    async def content(one: Any, other: Any, strategy: int) -> tuple[str, int]:
        merged = await statements.merge(one, other, content_strategy=strategy)
        return merged.memory.content, merged.content_strategy

    concatenate, replace = decisions_pb2.CONTENT_STRATEGY_CONCATENATE, decisions_pb2.CONTENT_STRATEGY_REPLACE
    summarize, smart = decisions_pb2.CONTENT_STRATEGY_SUMMARIZE, decisions_pb2.CONTENT_STRATEGY_SMART
    together = "Ada drinks green tea. She has a cat.\nBob eats rice."
    assert await content(first, strange, concatenate) == (together, concatenate)
    assert await content(first, second, replace) == ("Ada drinks green tea at noon. She has a cat.", replace)
    summary = "tea, cat\nShe has a cat.\nAda drinks green tea at noon."
    assert await content(first, second, summarize) == (summary, summarize)
    # 7 words of 9 are the same
    assert await content(first, second, smart) == (summary, summarize)
    assert await content(first, strange, smart) == (together, concatenate)


async def test_metadata_merging(statements: Statements) -> None:
    early = {"importance": 0.4, "create_time": at(0), "source": "skill", "keywords": ["tea", "Milk"]}
    late = {"importance": 0.8, "create_time": at(HOUR), "source": "inferred", "keywords": ["milk", "cup"]}

    async def merged(**config: Any) -> Any:
        return (await statements.merge(given("Tea.", **early), given("Milk.", **late), **config)).memory

    of = decisions_pb2
    for strategy, importance in (
        (of.IMPORTANCE_STRATEGY_MAX, 0.8),
        (of.IMPORTANCE_STRATEGY_BOOST, 0.9),
        (of.IMPORTANCE_STRATEGY_AVERAGE, 0.6),
    ):
        assert (await merged(importance_strategy=strategy)).importance == pytest.approx(importance)
    assert (await merged(timestamp_strategy=of.TIMESTAMP_STRATEGY_MAX)).create_time == at(HOUR)
    assert (await merged(timestamp_strategy=of.TIMESTAMP_STRATEGY_MIN)).create_time == at(0)
    union = await merged(keywords_strategy=of.KEYWORDS_STRATEGY_UNION)
    assert list(union.keywords) == ["tea", "Milk", "cup"]
    common = await merged(keywords_strategy=of.KEYWORDS_STRATEGY_INTERSECTION)
    assert list(common.keywords) == ["Milk"]
    order = ("user", "conversation", "skill", "system", "inferred")
    for better, worse in combinations(order, 2):
        for pair in ((better, worse), (worse, better)):
            one, other = (given(f"{source} says so.", source=source) for source in pair)
            answer = await statements.merge(one, other, source_strategy=of.SOURCE_STRATEGY_PREFER_HIGHER)
            assert answer.memory.source == better


async def test_importance_boost(statements: Statements) -> None:
    boost = decisions_pb2.IMPORTANCE_STRATEGY_BOOST
    for first, second, amount, merged in (
        (0.5, 0.7, None, 0.8),
        (0.95, 0.1, None, 1.0),
        (0.5, 0.7, 0.25, 0.95),
        (0.5, 0.7, 0.0, 0.7),
    ):
        config = {"importance_strategy": boost} | ({} if amount is None else {"importance_boost": amount})
        answer = await statements.merge(given("Tea.", importance=first), given("Milk.", importance=second), **config)
        assert answer.memory.importance == pytest.approx(merged)
        assert answer.statistics.importance_delta == pytest.approx(merged - max(first, second))


async def test_content_deduplication(statements: Statements) -> None:
    first, second = given("The user likes tea. She has a cat."), given("A user likes TEA! She has no cat.")
    concatenate = decisions_pb2.CONTENT_STRATEGY_CONCATENATE

    async def merged(**config: Any) -> tuple[str, int, int]:
        answer = await statements.merge(first, second, content_strategy=concatenate, **config)
        return answer.memory.content, answer.statistics.deduplicated_count, answer.statistics.guarded_count

    # "likes tea user" with and without "a" is 28 / 30 alike. The other two texts contradict each other.
    whole = "The user likes tea. She has a cat.\nA user likes TEA! She has no cat."
    once = "The user likes tea. She has a cat.\nShe has no cat."
    assert await merged(deduplicate=True) == (once, 1, 1)
    assert await merged(deduplicate=True, deduplication_threshold=0.93) == (once, 1, 0)
    assert await merged(deduplicate=True, deduplication_threshold=0.94) == (whole, 0, 0)
    assert await merged(deduplicate=False) == (whole, 0, 0)
    assert await merged(deduplication_guard=False) == ("The user likes tea.\nShe has no cat.", 2, 0)


async def test_merge_result_statistics(statements: Statements) -> None:
    first = await statements.known("Tea is hot. 茶。", importance=0.5, keywords=["tea", "hot"])
    second = await statements.known("Tea is hot.", importance=0.9, keywords=["cup", "Tea"])
    answer = await statements.merge(
        pb.MemoryReference(memory_id=first),
        pb.MemoryReference(memory_id=second),
        content_strategy=decisions_pb2.CONTENT_STRATEGY_CONCATENATE,
    )
    assert answer.memory.content == "Tea is hot. 茶。"
    assert answer.statistics.content_length == 14
    assert (answer.statistics.keywords_count, list(answer.memory.keywords)) == (3, ["tea", "hot", "cup"])
    assert answer.statistics.importance_delta == pytest.approx(0.1)
    assert answer.statistics.deduplicated_count == 1
    assert answer.decision.merge == answer.statistics
    assert list(answer.memory.merged_from) == [first, second]
    assert await statements.visible() == {answer.memory.memory_id}
    assert (await statements.get(first)).superseded_by == answer.memory.memory_id
