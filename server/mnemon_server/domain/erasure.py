"""Erasures: requests, progress and receipts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mnemon_server.domain.filters import Expression
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.origins import Provenance
from mnemon_server.domain.records import Scope

SECRET = "erasure.secret"  # noqa: S105 - the key under which it is stored
"""The value of a vault with the secret of its tombstones."""
RECEIPTS = "erasure.receipt."
"""Prefix of the keys of receipts, followed by the time of the erasure."""
REPLAY = "erasure.replay"
"""The value of a restored vault that has to erase again: the time of the newest tombstone that it had before, in
microseconds since 1970. Empty or missing otherwise."""


@dataclass(frozen=True, slots=True)
class EraseFilter:
    """Selects records of one kind. All fields that are set must match."""

    kind: RecordKind
    scope: Scope = Scope()
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class EraseTarget:
    """The subject of an erasure; exactly one field is set."""

    user: str = ""
    """All records of a user, and the facts in every namespace with a label that equals it."""
    namespace: Namespace | None = None
    """The facts in a namespace and below it."""
    where: EraseFilter | None = None
    source: Provenance | None = None
    """All records that come from there, of all kinds, and such versions of other records."""


class ErasePhase(StrEnum):
    """How far an erasure is. Once it has begun to remove, it is completed, whatever happens."""

    FINDING = "finding"
    REMOVING = "removing"
    SETTLING = "settling"
    CHECKING = "checking"


@dataclass(frozen=True, slots=True)
class EraseProgress:
    """How far a phase is."""

    phase: ErasePhase
    done: int = 0
    total: int = 0
    """0 if it is not known."""
    problem: str = ""
    """Why it is waiting; it is tried again by itself."""


@dataclass(frozen=True, slots=True)
class EraseCounts:
    """Counts of an erasure's records, by store."""

    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """The confirmation of an erasure. The signature is that of the text's bytes in UTF-8."""

    text: str
    """JSON with sorted keys and without spaces."""
    signature: bytes
    public_key: bytes
    replayed: bool = False

    @property
    def said(self) -> dict[str, Any]:
        """The content of the text, as JSON values."""
        values: dict[str, Any] = json.loads(self.text)
        return values


EraseMessage = EraseProgress | EraseCounts | ErasureReceipt
"""One message of an erasure; the last one is a receipt, or the counts of a dry run."""


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A request to erase."""

    target: EraseTarget
    dry_run: bool = False
    request_id: str = ""
    revoke_keys: bool = False
    """Whether to end the API keys that are bound to the user or the namespace."""
