"""The position and the counts of the bridge: stored as JSON in the vault, in the transactions that they describe."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from mnemon_server.domain.bridge import ExtractionCounts
from mnemon_server.domain.clock import from_microseconds

STATE_KEY, POLICY_KEY = "bridge.state", "bridge.policy"


@dataclass(frozen=True, slots=True)
class Suspension:
    """The warning of the timeline that suspends the bridge."""

    severity: str
    message: str
    remediation: str


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The part of the timeline to read directly, since the log no longer names its events."""

    through: int
    """Events up to this sequence are read from the timeline; the log names those behind it."""
    links_after: int | None = 0
    """Linked statements behind this position are still to be compared with the timeline; None if all were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of the bridge. Positions are those of the log. Counts start when the vault is created."""

    position: int = 0
    """Everything up to this position was handled."""
    ahead: int = 0
    """Warnings and pruned events were handled up to this position."""
    ahead_pruned: int = 0
    """The number of pruned events that the log names between the two positions."""
    timeline_sequence: int = 0
    """The newest event of the timeline that was handled."""
    taken_through: int = 0
    """Events up to this sequence were read from the timeline itself, and are skipped when the log names them."""
    catch_up: CatchUp | None = None
    suspension: Suspension | None = None
    paused: bool = False
    routed: int = 0
    linked: int = 0
    deleted: int = 0
    demoted: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    lag_us: int | None = None
    segment_count: int = 0
    handled_us: int | None = None
    """When the last handled event was committed, in microseconds since 1970."""
    extraction: ExtractionCounts = field(default_factory=ExtractionCounts)

    @property
    def handled_time(self) -> datetime | None:
        """The same as a time."""
        return None if self.handled_us is None else from_microseconds(self.handled_us)

    @property
    def seen(self) -> int:
        """The position up to which the log was read."""
        return max(self.position, self.ahead)

    def counted(self, *, routed: int = 0, linked: int = 0, skipped: Mapping[str, int] | None = None) -> "State":
        """The state with these counts added."""
        counts = summed(self.skipped, skipped or {})
        return replace(self, routed=self.routed + routed, linked=self.linked + linked, skipped=counts)

    def extracting(self, *, refused: Mapping[str, int] | None = None, **more: int) -> "State":
        """The state with these counts of the extraction added."""
        before = self.extraction
        counts = {name: getattr(before, name) + count for name, count in more.items()}
        return replace(self, extraction=replace(before, refused=summed(before.refused, refused or {}), **counts))


def summed(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The counts of both."""
    return {name: counts.get(name, 0) + more.get(name, 0) for name in (*counts, *more)}


def state_to_json(state: State) -> str:
    """The state as JSON."""
    return json.dumps(asdict(state), ensure_ascii=False, separators=(",", ":"))


def state_from_json(text: str | None) -> State:
    """The state that `state_to_json` wrote; the initial state for None."""
    if not text:
        return State()
    values: dict[str, Any] = json.loads(text)
    suspension, catch_up = values.pop("suspension"), values.pop("catch_up")
    return State(
        extraction=ExtractionCounts(**values.pop("extraction")),
        **values,
        suspension=Suspension(**suspension) if suspension else None,
        catch_up=CatchUp(**catch_up) if catch_up else None,
    )
