"""What the semantic store asks of whoever settles conflicts."""

from dataclasses import dataclass
from typing import Protocol

from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic, SemanticMemory
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vault import VaultTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSemantic:
    """A statement on its way into the records: checked, with an id of its own, and embedded."""

    memory: SemanticMemory
    """Its `create_time` is None where it is to be the commit's time."""
    vector: Vector
    """Of unit length."""
    policy: ConflictPolicy = ConflictPolicy.IGNORE
    rule: str = ""
    """Empty: the one whose conditions match."""


class Resolver(Protocol):
    """Saves statements whose policy is not IGNORE."""

    def save(self, tx: VaultTransaction, write: NewSemantic) -> SavedSemantic:
        """Stores the statement, or does what its rule says about its conflicts; duplicates are answered as such.

        Runs inside a transaction, and does everything in it. The sequences of receipts may be 0, and conflicts may be
        more than an answer holds.

        Raises:
            RuleNotFoundError: there is no rule of this name.
        """
