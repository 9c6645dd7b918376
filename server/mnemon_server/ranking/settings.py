"""The settings of keyword and hybrid rankings in an engine."""

from dataclasses import dataclass

from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion
from mnemon_server.ranking.heads import NO_HEADS, Heads
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT


@dataclass(frozen=True, slots=True)
class RankingSettings:
    """How an engine ranks texts."""

    context_weight: float = CONTEXT_WEIGHT
    """Weight of a word for the neighbouring passages or events, see `keyword_context`."""
    fusion: Fusion = DEFAULT_FUSION
    """How meaning and keywords are combined into the relevance of an event."""
    heads: Heads = NO_HEADS
    """The heads of the texts of a new vault, embedded and indexed before them. A vault that exists keeps its own until
    all records are embedded anew.
    """


DEFAULT_RANKING = RankingSettings()
