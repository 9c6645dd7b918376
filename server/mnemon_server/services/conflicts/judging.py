"""Asks the operator's judge, a language model, how a new statement relates to the stored ones that the index proposes.

A judge is asked before the transaction of a save, because the writer must not wait for a model. Its answers hold for
the revisions that it has seen. Where it fails, is late, or is out of budget, the relation model decides.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Protocol

from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.conflicts import DetectionConfig, Relation, SignalType
from mnemon_server.domain.errors import RuleNotFoundError
from mnemon_server.domain.semantic import ConflictPolicy, SemanticMemory
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.conflicts.detection import find_conflicts
from mnemon_server.services.conflicts.plans import as_candidate, find_rule
from mnemon_server.services.limits.accounts import Bucket
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.resolver import Judged, NewSemantic
from mnemon_server.services.semantic.stored_form import find_duplicate

CALLS_MAX = 4
"""Concurrent calls of a judge; further saves wait for their turn within their time."""
REASON_MAX = 300
"""Characters of a judge's reason that are kept."""

_RELATION = frozenset({SignalType.RELATION})

log = logging.getLogger(__name__)


class JudgeError(Exception):
    """A judge gave no usable answer. The message contains no text of a statement or of the answer."""


class Judge(Protocol):
    """Tells how statements relate. Any thread may call it, also several at once."""

    def judge(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Relation | None]:
        """The relation of each pair of a stored and a new text; None where it does not know. Blocks.

        Raises:
            JudgeError: it gave no usable answer.
        """

    def close(self) -> None:
        """Closes connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeLimits:
    """The budget of a judge."""

    timeout_s: float = 5.0
    """The time for which a save waits."""
    pairs_max: int = 8
    """Stored statements that a save asks about: those that are most probably related."""
    calls_per_minute: float = 60.0


class JudgeDesk:
    """Calls a judge within its limits. Belongs to one event loop."""

    def __init__(self, judge: Judge, limits: JudgeLimits) -> None:
        """The judge is closed with it."""
        self.limits = limits
        self._judge = judge
        self._offload = Offload(CALLS_MAX, "judge")
        self._turns = asyncio.Semaphore(CALLS_MAX)
        self._calls = Bucket(limits.calls_per_minute / 60.0, limits.calls_per_minute, now=time.monotonic)

    async def ask(self, pairs: Sequence[tuple[str, str]]) -> Sequence[Relation | None]:
        """The relation of each pair; empty if the judge is out of budget.

        Raises:
            JudgeError: it failed, or is late.
        """
        if self._calls.wait_s(1.0):
            log.debug("the judge is not asked: its budget for this minute is used up")
            return ()
        self._calls.spend(1.0)
        try:
            async with asyncio.timeout(self.limits.timeout_s), self._turns:
                return await self._offload(self._judge.judge, pairs)
        except TimeoutError as error:
            raise JudgeError(f"it did not answer within {self.limits.timeout_s:g} s") from error

    async def aclose(self) -> None:
        """Ends calls in progress."""
        self._judge.close()
        await self._offload.aclose()


class Advisor:
    """Gets the judge's answers about new statements of a vault."""

    def __init__(self, records: RecordEngine, rules: RuleStore, desk: JudgeDesk, offload: Offload) -> None:
        self._records, self._rules = records, rules
        self._desk, self._offload = desk, offload
        self._failures = Counter[str]()

    def over(self, records: RecordEngine) -> "Advisor":
        """The same advisor over a part of the records. Both count their failures together."""
        part = copy(self)
        part._records = records
        return part

    @property
    def failed_count(self) -> int:
        """How often the judge was asked and failed."""
        return self._failures.total()

    async def judge(self, new: NewSemantic) -> Judged:
        """The judgements on a new statement; empty if the rule does not evaluate the relation."""
        proposed = await self._offload(self._proposed, new)
        if not proposed:
            return {}
        try:
            relations = await self._desk.ask([(memory.content, new.memory.content) for memory in proposed])
        except JudgeError as error:
            self._failures["judge"] += 1
            log.warning("the judge failed, so the relation model decides: %s (failure %d)", error, self.failed_count)
            return {}
        return {
            memory.memory_id: (memory.revision, replace(relation, reason=relation.reason[:REASON_MAX]))
            for memory, relation in zip(proposed, relations, strict=False)
            if relation is not None
        }

    def _proposed(self, new: NewSemantic) -> list[SemanticMemory]:
        if new.policy is ConflictPolicy.IGNORE:
            return []
        candidate = as_candidate(new, system_clock())
        try:
            detection = find_rule(self._rules.rules_in(), new.rule, candidate).detection
        except RuleNotFoundError:
            return []  # the save reports it
        if SignalType.RELATION not in detection.signals or find_duplicate(self._records, candidate, new.policy):
            return []
        likeliest = DetectionConfig(signals=_RELATION, required_signals=_RELATION, relation_threshold=0.0)
        found = find_conflicts(self._records, candidate, likeliest, limit=self._desk.limits.pairs_max)
        return [opponent.memory for opponent in found.opponents]
