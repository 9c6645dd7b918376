"""The values of quarantines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mnemon._values.documents import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine(JsonValue):
    """A source whose records are hidden."""

    origin: str
    origin_name: str = ""
    """Empty means any."""
    reason: str = ""
    create_time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReceipt(JsonValue):
    """The confirmation of a quarantine, or of its end."""

    quarantine: Quarantine | None = None
    """None if the source was not in quarantine."""
    existed: bool = False
    """Whether the source was in quarantine before."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many records are hidden now or, after a release, shown again, by kind (see RecordKind)."""
