"""The interface through which the semantic store resolves conflicts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from mnemon_server.domain.conflicts import Relation
from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic, SemanticMemory
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import VaultTransaction

Judged = Mapping[str, tuple[int, Relation]]
"""The relations of a new statement to stored ones, by their ids, each with the revision that was judged."""
NOT_JUDGED: Judged = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSemantic:
    """A statement to store: checked, with a new id, and embedded."""

    memory: SemanticMemory
    """If its `create_time` is None, it gets the time of the commit."""
    vector: Vector
    """Has unit length."""
    is_read: bool = True
    """Whether the vector tells what the statement means: it was given, or made by a model that reads the language."""
    policy: ConflictPolicy = ConflictPolicy.IGNORE
    rule: str = ""
    """The name of the rule; if empty, the rule whose conditions match."""
    judged: Judged = field(default_factory=dict)
    """The judgements from before the transaction."""


class Resolver(Protocol):
    """Saves statements whose policy is not IGNORE."""

    @property
    def has_judge(self) -> bool:
        """Whether `judge` may ask anybody."""

    @property
    def judge_failed_count(self) -> int:
        """How often the judge was asked and failed."""

    async def judge(self, new: NewSemantic) -> Judged:
        """The judgements of the operator's judge, before the transaction; empty if it is not asked, or fails."""

    def over(self, records: RecordEngine) -> "Resolver":
        """The same resolver for the saves of a caller who sees only these records."""

    def save(self, tx: VaultTransaction, write: NewSemantic) -> SavedSemantic:
        """Stores the statement, or resolves its conflicts by its rule; a duplicate is reported as such.

        Runs inside the transaction, and does everything in it. The sequences of receipts may be 0, and there may be
        more conflicts than an answer holds.

        Raises:
            RuleNotFoundError: the rule does not exist.
        """
