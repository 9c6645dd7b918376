"""Merges two statements into one: their contents and all their other fields."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from rapidfuzz import fuzz, process

from mnemon_server.domain.conflicts import (
    ContentStrategy,
    ImportanceStrategy,
    KeywordsStrategy,
    MergeConfig,
    MergeStatistics,
    SourceStrategy,
    TimestampStrategy,
)
from mnemon_server.domain.encoding import owner_values
from mnemon_server.domain.origins import least_trusted, with_origin
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.conflicts.arbitration import source_priority
from mnemon_server.services.conflicts.signals import TOLERANCE, direction, exceeds
from mnemon_server.services.conflicts.wording import Wording, bare_words, is_question
from mnemon_server.services.semantic.event_links import merged_metadata
from mnemon_server.services.semantic.terms import normalised_keyword, readable_words, telling_words, words_of

# Splits texts into sentences and drops repetitions.


SENTENCES_COMPARED_MAX = 200
"""In a text with more distinct sentences, only exact repetitions are dropped: comparing all pairs would keep
other writes waiting for too long."""

_CLOSING = r"\"'”’»›)\]』」】）"
# A run of marks is matched only from its first mark, and without backtracking: long runs do not take long.
_END = re.compile(rf"(?<![.!?])[.!?]++[{_CLOSING}]*+(?=\s|$)\s*+|[。！？]++[{_CLOSING}。！？.!?]*+\s*+")
_ABBREVIATION = re.compile(
    r"\b(?:\w|mr|mrs|ms|mx|dr|prof|st|sr|jr|rev|gen|capt|no|nr|vs|etc|e\.g|i\.e|z\.B|ca|approx|inc|ltd)\.$",
    re.IGNORECASE,
)
_ABBREVIATION_MAX = 8


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """A text without its repetitions, how many sentences were left out, and how many only the guard kept."""

    text: str
    dropped_count: int = 0
    guarded_count: int = 0


def split_sentences(text: str) -> list[str]:
    """The sentences, each with its end mark and the white space behind it; joined, they are the text."""
    return [sentence for line in text.splitlines(keepends=True) for sentence in _split_line(line)]


def deduplicate(text: str, threshold: float, *, guard: bool = True) -> Deduplicated:
    """The text without the sentences that others repeat at a token-set ratio of at least `threshold`, 0 to 1.

    Everything else is unchanged, including line ends, except for lines that are now empty. With `guard`, a
    sentence stays if it may say something else than the sentence that repeats it.
    """
    lines = [list(_split_line(line)) for line in text.splitlines(keepends=True)]
    comparison = _Comparison(threshold, guard=guard)
    comparison.compare([sentence for line in lines for sentence in line])
    repeated, guarded_count = comparison.repeated, len(comparison.guarded)
    if not repeated:
        return Deduplicated(text, guarded_count=guarded_count)
    kept, position = [], 0
    for line in lines:
        numbered = enumerate(line, position)
        kept.append(_kept_of_line(line, [sentence for number, sentence in numbered if number not in repeated]))
        position += len(line)
    return Deduplicated("".join(kept).rstrip(), len(repeated), guarded_count)


def _kept_of_line(line: list[str], kept: list[str]) -> str:
    if not kept or len(kept) == len(line):
        return "".join(kept)
    end = line[-1][len(line[-1].rstrip()) :]
    return "".join(kept).rstrip() + end


def _split_line(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        if end.end() < len(line) and not _goes_on(line, start, end):
            yield line[start : end.end()]
            start = end.end()
    yield line[start:]


def _goes_on(line: str, start: int, end: re.Match[str]) -> bool:
    """Whether a sentence goes on behind what looks like its end."""
    if line[end.start()] in "!?":
        return line[end.end()].islower()
    if end[0].rstrip() != ".":
        return False
    stop = end.start() + 1
    is_marker = stop - start <= _ABBREVIATION_MAX and len(line[start:stop].strip()) <= 3
    return is_marker or _ABBREVIATION.search(line, max(start, stop - _ABBREVIATION_MAX), stop) is not None


class _Comparison:
    """The numbers of the dropped sentences, and of the sentences that only the guard kept."""

    def __init__(self, threshold: float, *, guard: bool) -> None:
        self._score_min = (threshold - TOLERANCE) * 100.0
        self._guard = guard
        self.repeated: set[int] = set()
        self.guarded: set[int] = set()

    def compare(self, sentences: list[str]) -> None:
        """Fills both; each dropped sentence repeats a kept one."""
        different = self._different(sentences)
        if len(different) > SENTENCES_COMPARED_MAX:
            return
        wordings = {
            number: Wording.of(words, is_question=is_question(sentences[number])) for number, words in different.items()
        }
        kept: list[Wording] = []
        for number, wording in sorted(wordings.items(), key=lambda item: (-len(item[1].text), item[0])):
            self._compare(number, wording, kept)
            if number not in self.repeated:
                kept.append(wording)

    def _different(self, sentences: list[str]) -> dict[int, list[str]]:
        """The words of the sentences that have any; of several with the same words, only the first."""
        known: set[tuple[str, bool]] = set()
        found: dict[int, list[str]] = {}
        for number, sentence in enumerate(sentences):
            words = bare_words(sentence)
            key = (" ".join(words).lower(), self._guard and is_question(sentence))
            if not words:
                continue
            if key in known:
                self.repeated.add(number)
            else:
                known.add(key)
                found[number] = words
        return found

    def _compare(self, number: int, wording: Wording, kept: list[Wording]) -> None:
        if not kept:
            return
        texts = [other.text for other in kept]
        [scores] = process.cdist([wording.text], texts, scorer=fuzz.token_set_ratio, dtype=np.float64)
        alike = [kept[index] for index in np.flatnonzero(scores >= self._score_min)]
        if not alike:
            return
        if self._guard and all(wording.differs(other) for other in alike):
            self.guarded.add(number)
        else:
            self.repeated.add(number)


SUMMARIZED_ABOVE = 0.7
"""SMART summarizes if the common words are more than this share of all words."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged statement, the statistics of the merge, and the strategy that was used: never SMART."""

    memory: SemanticMemory
    statistics: MergeStatistics
    content_strategy: ContentStrategy


def merge(
    first: SemanticMemory, second: SemanticMemory, config: MergeConfig, *, source_priority: Mapping[str, float]
) -> Merged:
    """The merged statement, without an id, times of change and revision: these are set when it is stored.

    A value that only one statement has is taken from it; one that both lack stays missing. If the two differ in a key
    of the metadata or a field of the scope, the second one's value is used; links to events are those of both. If the
    content equals that of one statement, so does the vector; otherwise it is the mean of both, with unit length. The
    content may become twice as long as a statement allows.
    """
    strategy = _content_strategy(first, second, config)
    merged = _merged_content(strategy, first, second, config)
    importance = _importance(first.importance, second.importance, config)
    keywords = _keywords(first.keywords, second.keywords, config.keywords_strategy)
    memory = SemanticMemory(
        memory_id="",
        content=merged.text,
        summary=_joined(first.summary, second.summary, config).text,
        scope=_scope(first.scope, second.scope),
        importance=importance,
        keywords=keywords,
        source=_source(first.source, second.source, config.source_strategy, source_priority),
        metadata=merged_metadata(first.metadata, second.metadata),
        create_time=_time(first.create_time, second.create_time, config.timestamp_strategy),
        merged_from=tuple(filter(None, (first.memory_id, second.memory_id))) if config.keep_history else (),
        embedding=_embedding(first, second, merged.text),
    )
    statistics = MergeStatistics(
        content_length=len(merged.text),
        keywords_count=len(keywords),
        importance_delta=_importance_delta(first.importance, second.importance, importance),
        deduplicated_count=merged.dropped_count,
        guarded_count=merged.guarded_count,
    )
    return Merged(memory, statistics, strategy)


def _content_strategy(first: SemanticMemory, second: SemanticMemory, config: MergeConfig) -> ContentStrategy:
    if config.content_strategy is not ContentStrategy.SMART:
        return config.content_strategy
    ours, theirs = set(words_of(first.content)), set(words_of(second.content))
    alike = len(ours & theirs) / len(ours | theirs) if ours | theirs else 0.0
    return ContentStrategy.SUMMARIZE if exceeds(alike, SUMMARIZED_ABOVE) else ContentStrategy.CONCATENATE


def _merged_content(
    strategy: ContentStrategy, first: SemanticMemory, second: SemanticMemory, config: MergeConfig
) -> Deduplicated:
    match strategy:
        case ContentStrategy.REPLACE:
            return Deduplicated(second.content)
        case ContentStrategy.SUMMARIZE:
            return _summarized(first, second, config)
        case _:
            return _joined(first.content, second.content, config)


def _summarized(first: SemanticMemory, second: SemanticMemory, config: MergeConfig) -> Deduplicated:
    """A line with what both are about, then the sentences that add something. De-duplicates whatever the rule says for
    other strategies."""
    combined = _without_repetitions(f"{first.content}\n{second.content}", config)
    about = ", ".join(_common_keywords(first, second))
    return replace(combined, text=f"{about}\n{combined.text}") if about else combined


def _joined(first: str, second: str, config: MergeConfig) -> Deduplicated:
    text = f"{first}\n{second}" if first and second else first or second
    return _without_repetitions(text, config) if config.deduplicate else Deduplicated(text)


def _without_repetitions(text: str, config: MergeConfig) -> Deduplicated:
    return deduplicate(text, config.deduplication_threshold, guard=config.deduplication_guard)


def _common_keywords(first: SemanticMemory, second: SemanticMemory) -> list[str]:
    """The words that both are about, in the first one's order and spelling: keywords, or else words of the content."""
    return list(_keywords(_subjects(first), _subjects(second), KeywordsStrategy.INTERSECTION))


def _subjects(memory: SemanticMemory) -> Sequence[str]:
    given = [keyword for keyword in memory.keywords if keyword.strip()]
    return given or telling_words(readable_words(memory.content))


def _importance(first: float | None, second: float | None, config: MergeConfig) -> float | None:
    known = [importance for importance in (first, second) if importance is not None]
    if not known:
        return None
    match config.importance_strategy:
        case ImportanceStrategy.MAX:
            return max(known)
        case ImportanceStrategy.BOOST:
            return min(1.0, max(known) + config.importance_boost)
        case ImportanceStrategy.AVERAGE:
            return sum(known) / len(known)


def _importance_delta(first: float | None, second: float | None, merged: float | None) -> float:
    known = [importance for importance in (first, second) if importance is not None]
    return 0.0 if merged is None else merged - max(known)


def _keywords(first: Sequence[str], second: Sequence[str], strategy: KeywordsStrategy) -> tuple[str, ...]:
    """The keywords in the first one's order and spelling, then the second one's; equal keywords occur once."""
    ours, theirs = _by_normalised(first), _by_normalised(second)
    match strategy:
        case KeywordsStrategy.UNION:
            return tuple({**theirs, **ours}[normalised] for normalised in {**ours, **theirs})
        case KeywordsStrategy.INTERSECTION:
            return tuple(keyword for normalised, keyword in ours.items() if normalised in theirs)


def _by_normalised(keywords: Sequence[str]) -> dict[str, str]:
    """The keywords by their normalised form; of equal ones, the first."""
    found: dict[str, str] = {}
    for keyword in keywords:
        found.setdefault(normalised_keyword(keyword), keyword)
    return found


def _source(first: str, second: str, strategy: SourceStrategy, priorities: Mapping[str, float]) -> str:
    if not (first and second):
        return first or second
    match strategy:
        case SourceStrategy.PREFER_HIGHER:
            return second if source_priority(second, priorities) > source_priority(first, priorities) else first
        case SourceStrategy.FIRST:
            return first
        case SourceStrategy.SECOND:
            return second


def _time(first: datetime | None, second: datetime | None, strategy: TimestampStrategy) -> datetime | None:
    if first is None or second is None:
        return first or second
    return max(first, second) if strategy is TimestampStrategy.MAX else min(first, second)


def _scope(first: Scope, second: Scope) -> Scope:
    owner = (late or early for late, early in zip(owner_values(second), owner_values(first), strict=True))
    return with_origin(Scope(*owner), least_trusted((second, first)))


def _embedding(first: SemanticMemory, second: SemanticMemory, content: str) -> tuple[float, ...] | None:
    for memory in (second, first):
        if content == memory.content and memory.embedding is not None:
            return memory.embedding
    if first.embedding is None or second.embedding is None:
        return first.embedding or second.embedding
    return _mean(first.embedding, second.embedding)


def _mean(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    """The mean of both directions; the second vector if they are opposite or cannot be compared."""
    ours, theirs = direction(first), direction(second)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return tuple(second)
    between = direction(np.asarray(ours + theirs, np.float64).tolist())
    return tuple(second) if between is None else tuple(between.tolist())
