"""The values of erasures."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from mnemon._values.documents import JsonValue


class ErasePhase(StrEnum):
    """The state of an erasure. Once it has begun to remove, it is completed, whatever happens."""

    UNKNOWN = "unknown"
    FINDING = "finding"
    REMOVING = "removing"
    SETTLING = "settling"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True)
class EraseProgress(JsonValue):
    """How far an erasure is."""

    phase: ErasePhase
    done: int = 0
    total: int = 0
    """0 if it is not known."""
    problem: str = ""
    """Why it waits; the server tries again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReceipt(JsonValue):
    """The confirmation of an erasure. As JSON, it is the file that the program in the server's ERASURE.md verifies."""

    text: str
    """The signed JSON."""
    signature: bytes
    """Ed25519, of the UTF-8 bytes of the text."""
    public_key: bytes
    begin_time: datetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of erased records and traces, by kind."""
    tombstone_count: int = 0
    out_of_reach: tuple[str, ...] = ()
    """Copies that the erasure could not reach, such as backups."""
    found_files: tuple[str, ...] = ()
    """Files in which something erased is left; empty if all is gone."""
    found_neighbours: int = 0
    """Erased records that a search still finds; 0 if all is gone."""
    replayed: bool = False
    """It was erased by an earlier call with the same request id."""

    @property
    def is_complete(self) -> bool:
        """Whether the check found nothing."""
        return not self.found_files and not self.found_neighbours

    @property
    def said(self) -> dict[str, Any]:
        """The content of the text, as JSON values."""
        values: dict[str, Any] = json.loads(self.text)
        return values

    def _fields(self) -> dict[str, Any]:
        return {"receipt": self.text, "signature": self.signature.hex(), "public_key": self.public_key.hex()}
