"""The expected statements of a user after saves, merges and undos, computed independently of the server."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

MERGING, NEWCOMER, HOLDER, REFUSING = "merging", "newcomer", "holder", "refusing"
"""The rules by which saves are settled: both become one, the new one stays, the known one stays, nothing is stored."""

Told = tuple[str, str]
"""Type and record of a change."""


@dataclass(frozen=True)
class Known:
    """A statement. A superseded one names its successor."""

    content: str
    topics: frozenset[str]
    superseded_by: str = ""
    merged_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settled:
    """A decision: its rule and its statements."""

    rule: str
    existing: str
    candidate: str
    result: str
    reverted: bool = False

    @property
    def given_way(self) -> tuple[str, ...]:
        """The statements that it superseded."""
        ways = {MERGING: (self.existing, self.candidate), NEWCOMER: (self.existing,), HOLDER: (self.candidate,)}
        return ways.get(self.rule, ())


@dataclass
class Ledger:
    """The statements of a user in the order of saving, the decisions about them, and each call's changes."""

    statements: dict[str, Known] = field(default_factory=dict)
    decisions: dict[str, Settled] = field(default_factory=dict)
    changes: dict[str, list[Told]] = field(default_factory=dict)

    def visible(self) -> list[str]:
        """The visible statements."""
        return [memory_id for memory_id, known in self.statements.items() if not known.superseded_by]

    def opponent(self, topic: str) -> str | None:
        """The worst conflict of a statement about a topic. All are equally severe, so it is the one saved first."""
        return next((memory_id for memory_id in self.visible() if topic in self.statements[memory_id].topics), None)

    def revertible(self) -> list[str]:
        """The decisions that no later decision depends on."""
        return [decision_id for decision_id, settled in self.decisions.items() if self._is_revertible(settled)]

    def saved(self, request_id: str, memory_id: str, known: Known) -> None:
        """A statement saved without a conflict."""
        self.statements[memory_id] = known
        self.changes[request_id] = [("SEMANTIC_SAVED", memory_id)]

    def settled(self, request_id: str, decision_id: str, settled: Settled, new: Known) -> None:
        """A save with a conflict."""
        self.decisions[decision_id] = settled
        changes: list[Told] = []
        if settled.rule == MERGING:
            self.statements[settled.candidate] = new
            changes = [*self._merge(settled)]
        elif settled.rule == NEWCOMER:
            self._supersede(settled.existing, settled.result)
            self.statements[settled.candidate] = new
            changes = [("SEMANTIC_PRUNED", settled.existing), ("SEMANTIC_SAVED", settled.candidate)]
        elif settled.rule == HOLDER:
            self.statements[settled.candidate] = replace(new, superseded_by=settled.existing)
            changes = [("SEMANTIC_PRUNED", settled.candidate)]
        noted = [("CONFLICT_DETECTED", decision_id), *changes, ("CONFLICT_RESOLVED", decision_id)]
        self.changes[request_id] = noted + [("CONFLICT_MERGED", decision_id)] * (settled.rule == MERGING)

    def merged(self, request_id: str, decision_id: str, settled: Settled) -> None:
        """A merge of two stored statements."""
        self.decisions[decision_id] = settled
        self.changes[request_id] = [*self._merge(settled), ("CONFLICT_MERGED", decision_id)]

    def reverted(self, request_id: str, decision_id: str) -> None:
        """An undone decision."""
        settled = self.decisions[decision_id]
        self.decisions[decision_id] = replace(settled, reverted=True)
        for memory_id in settled.given_way:
            self.statements[memory_id] = replace(self.statements[memory_id], superseded_by="")
        told = [("SEMANTIC_SAVED", memory_id) for memory_id in settled.given_way]
        if settled.rule == MERGING:
            told.append(("SEMANTIC_PRUNED", settled.result))
            del self.statements[settled.result]
            self._forget_decisions_about(settled.result, but=decision_id)
        self.changes[request_id] = [*told, ("CONFLICT_REVERTED", decision_id)]

    def _merge(self, settled: Settled) -> Iterator[Told]:
        first, second = self.statements[settled.existing], self.statements[settled.candidate]
        content = f"{first.content}\n{second.content}"
        self.statements[settled.result] = Known(content, first.topics | second.topics, merged_from=settled.given_way)
        for memory_id in settled.given_way:
            self._supersede(memory_id, settled.result)
            yield ("SEMANTIC_PRUNED", memory_id)
        yield ("SEMANTIC_SAVED", settled.result)

    def _supersede(self, memory_id: str, by: str) -> None:
        self.statements[memory_id] = replace(self.statements[memory_id], superseded_by=by)

    def _forget_decisions_about(self, memory_id: str, *, but: str) -> None:
        for decision_id, settled in list(self.decisions.items()):
            if decision_id != but and memory_id in (settled.existing, settled.candidate, settled.result):
                del self.decisions[decision_id]

    def _is_revertible(self, settled: Settled) -> bool:
        result = self.statements.get(settled.result)
        if settled.reverted or not settled.given_way or result is None or result.superseded_by:
            return False
        behind = {memory_id for memory_id, known in self.statements.items() if known.superseded_by == settled.result}
        if settled.rule == MERGING:
            return behind == set(settled.given_way)
        return behind >= set(settled.given_way)
