"""Statements for tests of conflicts: made by hand, and drawn by hypothesis."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from mnemon_server.domain.conflicts import (
    ArbitrationConfig,
    ContentStrategy,
    DefaultStrategy,
    DetectionConfig,
    ImportanceStrategy,
    KeywordsStrategy,
    MergeConfig,
    SignalType,
    SourceStrategy,
    TimestampStrategy,
)
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def statement(
    content: str = "Anna drinks tea.", memory_id: str = "", user: str = "anna", **fields: Any
) -> SemanticMemory:
    """A statement of a user; without a time, an importance, keywords or a vector, unless they are given."""
    return SemanticMemory(memory_id, content, scope=Scope(user=user), **fields)


SHARES = st.floats(0.0, 1.0) | st.sampled_from((0.0, 0.3, 0.5, 0.7, 1.0))
SOURCES = st.sampled_from(("", "user", "conversation", "skill", "system", "inferred", "a form")) | st.text(max_size=8)
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1), timezones=st.just(UTC)) | st.sampled_from(
    (NOON, NOON + timedelta(microseconds=1), NOON - timedelta(hours=24))
)
VECTORS = st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=3).map(tuple)
WORDS = st.sampled_from(
    ("Anna", "Ben", "likes", "tea", "coffee", "not", "the", "really", "東京が好き", "3.5", "C++", "no")
)
ENDS = st.sampled_from((".", "!", "?", "。", "！", "？", "...", "\n", "\r\n", ". ", ".\n\n", " ", ""))
SENTENCES = st.tuples(st.lists(WORDS, min_size=1, max_size=5), ENDS).map(lambda pair: " ".join(pair[0]) + pair[1])
CONTENTS = st.lists(SENTENCES, min_size=1, max_size=6).map("".join) | st.text(min_size=1, max_size=60)


def statements(contents: st.SearchStrategy[str] = CONTENTS) -> st.SearchStrategy[SemanticMemory]:
    """Any statement of one user that may be stored, and some with values that may not."""
    return st.builds(
        SemanticMemory,
        memory_id=st.sampled_from(("", "one", "two")),
        content=contents,
        summary=st.sampled_from(("", "Tea.", "Tea and coffee.")),
        scope=st.just(Scope(user="anna")),
        importance=st.none() | SHARES,
        keywords=st.lists(
            st.sampled_from(("tea", "Tea", "coffee", "ＴＥＡ", " ")) | st.text(max_size=4), max_size=4
        ).map(tuple),
        source=SOURCES,
        metadata=st.dictionaries(st.sampled_from(("a", "b")), st.integers(0, 3), max_size=2),
        create_time=st.none() | TIMES,
        embedding=st.none() | VECTORS,
    )


def detection_configs() -> st.SearchStrategy[DetectionConfig]:
    """Any configuration of detection, and some that would be refused."""
    return st.builds(
        DetectionConfig,
        semantic_threshold=SHARES,
        keyword_threshold=SHARES,
        time_window=st.timedeltas(timedelta(), timedelta(days=10_000)),
        importance_delta=SHARES,
        signals=st.frozensets(st.sampled_from(SignalType)),
    )


def arbitration_configs() -> st.SearchStrategy[ArbitrationConfig]:
    """Any configuration of arbitration, and some that would be refused."""
    weights: st.SearchStrategy[Mapping[str, float]] = st.dictionaries(
        st.sampled_from(("importance", "recency", "source", "semantic")), st.floats(0.0, 1e300), max_size=4
    )
    return st.builds(
        ArbitrationConfig,
        priority_importance=st.booleans(),
        priority_recency=st.booleans(),
        priority_source=st.booleans(),
        weights=weights | st.builds(lambda: ArbitrationConfig().weights),
        merge_threshold=SHARES,
        allow_merge=st.booleans(),
        default_strategy=st.sampled_from(DefaultStrategy),
        source_priority=st.dictionaries(SOURCES, st.floats(0.0, 10.0), max_size=4),
    )


def merge_configs(contents: st.SearchStrategy[ContentStrategy]) -> st.SearchStrategy[MergeConfig]:
    """Any configuration of merging with one of these content strategies."""
    return st.builds(
        MergeConfig,
        content_strategy=contents,
        importance_strategy=st.sampled_from(ImportanceStrategy),
        importance_boost=SHARES,
        timestamp_strategy=st.sampled_from(TimestampStrategy),
        source_strategy=st.sampled_from(SourceStrategy),
        keywords_strategy=st.sampled_from(KeywordsStrategy),
        deduplicate=st.booleans(),
        deduplication_threshold=SHARES,
        deduplication_guard=st.booleans(),
        keep_history=st.booleans(),
    )
