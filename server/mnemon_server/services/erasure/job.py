"""A running erasure, as it is stored: no name in clear, so that it can be completed after a restart, and then told.

It is stored in the transaction that stores the tombstones, and from then on it is completed, whatever happens. Its
values are removed in the transaction that stores the receipt.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

import numpy as np

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.erasure import RECEIPTS, REPLAY
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.erasure.survey import Probes

JOB, MARKS, PROBES = "erasure.job", "erasure.marks", "erasure.probes"
AFTER_US = "after_us"
"""In the subject of a re-erasure: the time after which tombstones are applied again."""


@dataclass(frozen=True, slots=True)
class Job:
    """The facts about an erasure that are known at its beginning."""

    time_us: int
    """When it began, which is the time of its tombstones: microseconds since 1970, different for each erasure."""
    subject: Mapping[str, str]
    counts: Mapping[str, int] = field(default_factory=dict)
    tombstones: int = 0
    request_id: str = ""
    digest: str = ""
    revoke_keys: bool = False

    @property
    def time(self) -> datetime:
        """The same as a time."""
        return from_microseconds(self.time_us)

    @property
    def request(self) -> RequestKey | None:
        """The request that began it, if it had an id."""
        return RequestKey(self.request_id, bytes.fromhex(self.digest)) if self.request_id else None

    @property
    def replays(self) -> bool:
        """Whether it repeats erasures in a restored vault."""
        return AFTER_US in self.subject

    @property
    def receipt_key(self) -> str:
        """The key under which its receipt is stored."""
        return f"{RECEIPTS}{self.time_us:020}"

    def store(self, tx: VaultTransaction, marks: Marks, probes: Probes) -> None:
        """Stores everything that is needed to complete it."""
        tx.set_value(JOB, json.dumps(asdict(self)))
        tx.set_value(MARKS, marks.to_text())
        tx.set_value(PROBES, _probes_to_text(probes))


def stored_job(vault: Vault) -> Job | None:
    """The erasure that is to be completed."""
    text = vault.value(JOB)
    return Job(**json.loads(text)) if text else None


def stored_evidence(vault: Vault) -> tuple[Marks, Probes]:
    """The marks and probes to look for after the removal."""
    marks, probes = vault.value(MARKS), vault.value(PROBES)
    assert marks is not None  # noqa: S101 - stored together with the job
    assert probes is not None  # noqa: S101
    return Marks.from_text(marks), _probes_from_text(probes)


def finish(tx: VaultTransaction, job: Job) -> None:
    """Removes the stored values of the job, and the request for a re-erasure."""
    for key in (JOB, MARKS, PROBES, *([REPLAY] if job.replays else [])):
        tx.set_value(key, "")


# Half precision: enough to find the neighbours, and other bytes than those of the erased vector.


def _probes_to_text(probes: Probes) -> str:
    stored = {
        kind.value: [base64.b64encode(vector.astype("<f2").tobytes()).decode() for vector in vectors]
        for kind, vectors in probes.items()
    }
    return json.dumps(stored)


def _probes_from_text(text: str) -> Probes:
    return {
        RecordKind(kind): [np.frombuffer(base64.b64decode(one), "<f2").astype(np.float32) for one in vectors]
        for kind, vectors in json.loads(text).items()
    }
