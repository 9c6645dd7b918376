"""What conflict detection, de-duplication and arbitration do with labelled pairs, with the product's own functions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click
from mnemon_server.assembly.embedder import open_configured_embedder
from mnemon_server.config.settings import Settings
from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationConfig,
    ArbitrationSide,
    ContentStrategy,
    DetectionConfig,
    MergeConfig,
    SignalType,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.embedding.base import Embedder
from mnemon_server.services.conflicts.arbitration import arbitrate
from mnemon_server.services.conflicts.merging import merge
from mnemon_server.services.conflicts.signals import RELATION_SIMILARITY_MIN, Comparison, compare, decide, signals_of
from mnemon_server.services.semantic.terms import content_hash

from tests.bench.classification import Answers
from tests.bench.conflict_pairs import Outcome, Pair

_KEPT = {ArbitrationSide.CANDIDATE: Outcome.RIGHT, ArbitrationSide.EXISTING: Outcome.LEFT}


@dataclass(frozen=True, slots=True)
class Trial:
    """A pair, and how far apart its sides are. The left one is known when the right one comes."""

    pair: Pair
    comparison: Comparison

    @property
    def is_duplicate(self) -> bool:
        """Whether the right side is not stored, because its content equals the left one's."""
        left, right = self.pair.left, self.pair.right
        return _digest(left) == _digest(right)

    def fires(self, config: DetectionConfig) -> bool:
        """Whether there is a conflict."""
        return bool(signals_of(self.comparison, config))

    @property
    def is_acted_on(self) -> bool:
        """Whether a save that resolves conflicts supersedes or merges one of the two, by the default rule."""
        defaults = DetectionConfig()
        return decide(signals_of(self.comparison, defaults), defaults)

    @property
    def is_found_by_perfect_judge(self) -> bool:
        """Whether a judge that is always right finds a conflict: it is asked only about what the index proposes."""
        similarity = self.comparison.similarity
        asked = similarity is not None and similarity > RELATION_SIMILARITY_MIN and self.comparison.relation is not None
        return asked and self.pair.agree_or_clash

    @property
    def has_right_relation(self) -> bool:
        """Whether the relation is that of the labels."""
        relation = self.comparison.relation
        return relation is not None and relation.type is self.pair.relation

    def drops_a_sentence(self, threshold: float, *, guard: bool) -> bool:
        """Whether merging the two drops a sentence as a repetition."""
        config = MergeConfig(
            content_strategy=ContentStrategy.CONCATENATE,
            deduplication_threshold=threshold,
            deduplication_guard=guard,
        )
        return self._merge(config) > 0

    def outcome(self, detection: DetectionConfig, arbitration: ArbitrationConfig) -> Outcome:
        """What is kept after the right side was saved with conflict resolution."""
        if self.is_duplicate:
            return Outcome.LEFT
        if not decide(signals_of(self.comparison, detection), detection):
            return Outcome.BOTH
        left, right = self.pair.left, self.pair.right
        result = arbitrate(right, left, arbitration, similarity=self.comparison.similarity)
        if result.action is ArbitrationAction.MERGE:
            return Outcome.MERGED
        return _KEPT[result.winner] if result.winner else Outcome.LEFT

    def _merge(self, config: MergeConfig) -> int:
        merged = merge(self.pair.left, self.pair.right, config, source_priority=ArbitrationConfig().source_priority)
        return merged.statistics.deduplicated_count


def open_embedder(model: str | None = None) -> Embedder:
    """The embedder of a model, by default the server's."""
    settings = Settings(embedding_model=model) if model else Settings()
    return open_configured_embedder(settings, lambda step: click.echo(step, err=True))


def run_trials(pairs: Sequence[Pair], embedder: Embedder) -> list[Trial]:
    """Compares every pair. Each text is embedded once and alone, as a save embeds it."""
    texts = {side.content for pair in pairs for side in (pair.left, pair.right)}
    # In a fixed order, so that two runs give the same result.
    vectors = {text: tuple(embedder.embed([text])[0].tolist()) for text in sorted(texts)}

    def embedded(memory: SemanticMemory) -> SemanticMemory:
        return replace(memory, embedding=vectors[memory.content])

    return [Trial(pair, compare(embedded(pair.right), embedded(pair.left))) for pair in pairs]


def only(*signals: SignalType, semantic: float | None = None, keyword: float | None = None) -> DetectionConfig:
    """The default detection with only these signals, and other thresholds if given."""
    defaults = DetectionConfig()
    return replace(
        defaults,
        signals=frozenset(signals),
        semantic_threshold=defaults.semantic_threshold if semantic is None else semantic,
        keyword_threshold=defaults.keyword_threshold if keyword is None else keyword,
    )


def detection_answers(trials: Sequence[Trial], config: DetectionConfig) -> Answers:
    """A conflict is right if the two agree or clash."""
    return Answers.of((trial.fires(config), trial.pair.agree_or_clash) for trial in trials)


def _digest(memory: SemanticMemory) -> str:
    return content_hash(memory.scope.user, memory.scope.persona, memory.content)
