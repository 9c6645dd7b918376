"""The interface through which the semantic store resolves conflicts."""

from dataclasses import dataclass
from typing import Protocol

from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic, SemanticMemory
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import VaultTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSemantic:
    """A statement to store: checked, with a new id, and embedded."""

    memory: SemanticMemory
    """If its `create_time` is None, it gets the time of the commit."""
    vector: Vector
    """Has unit length."""
    policy: ConflictPolicy = ConflictPolicy.IGNORE
    rule: str = ""
    """The name of the rule; if empty, the rule whose conditions match."""


class Resolver(Protocol):
    """Saves statements whose policy is not IGNORE."""

    def save(self, tx: VaultTransaction, write: NewSemantic) -> SavedSemantic:
        """Stores the statement, or resolves its conflicts by its rule; a duplicate is reported as such.

        Runs inside the transaction, and does everything in it. The sequences of receipts may be 0, and there may be
        more conflicts than an answer holds.

        Raises:
            RuleNotFoundError: the rule does not exist.
        """
