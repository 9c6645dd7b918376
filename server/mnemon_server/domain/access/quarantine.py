"""Quarantines: sources whose records are hidden until they are released."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import ErrorReason, NotFoundError
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import Origin, Provenance

QUARANTINES_MAX = 100
REASON_BYTES_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A source whose records are hidden."""

    source: Provenance
    """Always has an origin."""
    reason: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class QuarantineReceipt:
    """The confirmation of a quarantine, or of its end."""

    quarantine: Quarantine | None
    """None if the source was not in quarantine."""
    existed: bool
    """Whether the source was in quarantine before."""
    counts: Mapping[RecordKind, int] = field(default_factory=dict)
    """Numbers of the source's records that are hidden or, after a release, shown again, by kind."""


class QuarantineNotFoundError(NotFoundError):
    """The source is not in quarantine."""

    reason = ErrorReason.QUARANTINE_NOT_FOUND

    def __init__(self, source: Provenance) -> None:
        super().__init__(
            source.text,
            message=f"{source.text} is not in quarantine; ListQuarantines shows the sources that are, with their names",
        )


def hidden_by(quarantines: Sequence[Quarantine]) -> tuple[Provenance, ...]:
    """The origins and names of hidden records."""
    return with_unnamed([each.source for each in quarantines])


def with_unnamed(sources: Sequence[Provenance]) -> tuple[Provenance, ...]:
    """The sources as records have them: an empty origin counts as "agent"."""
    return (*sources, *([Provenance("")] if Provenance(Origin.AGENT) in sources else []))


def to_text(quarantines: Sequence[Quarantine]) -> str:
    """Encodes quarantines for storage."""
    return json.dumps([[*each.source, each.reason, to_microseconds(each.create_time)] for each in quarantines])


def from_text(text: str | None) -> tuple[Quarantine, ...]:
    """Decodes what `to_text` wrote, oldest quarantine first."""
    return tuple(
        Quarantine(Provenance(origin, name), reason, from_microseconds(time))
        for origin, name, reason, time in json.loads(text or "[]")
    )
