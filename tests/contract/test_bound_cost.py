"""A caller within bounds pays nothing for what others store.

The cost is counted in steps of SQLite's machine, which the caller could otherwise tell by a clock.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.collections import FACTS, MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import Condition, NoneOf, Operator, RecordFilter
from mnemon_server.domain.namespaces import Namespace, encode_namespace
from mnemon_server.domain.records import Scope
from mnemon_server.engines.bound.records import BoundRecords
from mnemon_server.engines.bound.vault import BoundVault
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.filters.plan import BOUNDS

from tests.contract.sqlite_vaults import open_sqlite
from tests.contract.vault_suite import START, ManualClock, unit_vector

OWN, OTHERS_FEW, OTHERS_MANY = 21, 2 * BOUNDS[0], 5 * BOUNDS[0]
STEPS_MARGIN = 1.1
MINE = ("ada", "eve", "ann")
EVERYTHING = RecordFilter()
HAS_EXPIRED = Condition("expire_time", Operator.LTE, (START + timedelta(days=1),))
ENDED, LIVING = RecordFilter(expression=HAS_EXPIRED), RecordFilter(expression=NoneOf((HAS_EXPIRED,)))
BOUND = {"to one": Bounds.of(MINE[:1], ["users.ada"]), "to several": Bounds.of(MINE, [f"users.{one}" for one in MINE])}
READS: dict[str, Callable[[BoundRecords], Any]] = {
    "list": lambda records: records.list_documents(EVERYTHING, limit=50),
    "list backwards": lambda records: records.list_documents(EVERYTHING, limit=50, descending=True),
    "count": lambda records: records.count_documents(EVERYTHING),
    "get": lambda records: records.get_documents(["r0", "r1", "r2", "r3"]),
    "passages": lambda records: records.match_passages(EVERYTHING),
    "statistics": lambda records: records.stats(),
    "a key that others have too": lambda records: records.has_metadata_key("topic"),
    "a key that only others have": lambda records: records.has_metadata_key("theirs"),
    "a type that only others have": lambda records: records.has_metadata_key("topic", like="text"),
}
READS_OF_FACTS = READS | {
    "namespaces": lambda records: records.distinct_texts("namespace", limit=50),
    "namespaces from the middle on": lambda records: records.distinct_texts("namespace", after="users.b.", limit=50),
    "those that have expired": lambda records: records.list_documents(ENDED, limit=50),
    "those that have not": lambda records: records.list_documents(LIVING, limit=50),
    "how many have not": lambda records: records.count_documents(LIVING),
    "passages of those that have not": lambda records: records.match_passages(LIVING),
}


class Meter:
    """Counts the steps of all statements on connections that are opened while it is installed."""

    def __init__(self) -> None:
        self.steps = 0

    def install(self, connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._count)

    def of(self, read: Callable[[BoundRecords], Any], records: BoundRecords) -> int:
        """The steps of a read, once SQLite has prepared its statements."""
        read(records)
        self.steps = 0
        read(records)
        return self.steps

    def _count(self, profile: dict[str, Any]) -> None:
        self.steps += profile["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@pytest.fixture(scope="module")
def meter() -> Iterator[Meter]:
    meter = Meter()
    apsw.connection_hooks.append(meter.install)
    yield meter
    apsw.connection_hooks.remove(meter.install)


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory, meter: Meter) -> Iterator[list[Vault]]:
    """Two vaults with the same records of three users, among few and among many of others."""
    opened = [_filled(tmp_path_factory.mktemp("vault"), others) for others in (OTHERS_FEW, OTHERS_MANY)]
    yield opened
    for vault in opened:
        vault.close()


@pytest.mark.parametrize("bounds", BOUND.values(), ids=BOUND)
@pytest.mark.parametrize("read", READS_OF_FACTS.values(), ids=READS_OF_FACTS)
def test_facts_of_others_cost_nothing(
    vaults: list[Vault], meter: Meter, read: Callable[[BoundRecords], Any], bounds: Bounds
) -> None:
    few, many = (meter.of(read, BoundVault(vault, bounds).collection(FACTS)) for vault in vaults)
    assert 0 < many <= STEPS_MARGIN * few


@pytest.mark.parametrize("bounds", BOUND.values(), ids=BOUND)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_memories_of_others_cost_nothing(
    vaults: list[Vault], meter: Meter, read: Callable[[BoundRecords], Any], bounds: Bounds
) -> None:
    few, many = (meter.of(read, BoundVault(vault, bounds).collection(MEMORIES)) for vault in vaults)
    assert 0 < many <= STEPS_MARGIN * few


def _filled(folder: Path, others: int) -> Vault:
    vault = open_sqlite(folder, ManualClock())
    size = OWN + others
    # Spread over the vault, as they are when many users write at the same time.
    places = {1 + i * (size - 2) // OWN: MINE[i % len(MINE)] for i in range(OWN)}
    for collection in (FACTS, MEMORIES):
        writes = [_write(number, places.get(number, "")) for number in range(size)]
        receipts = vault.collection(collection).put_documents(writes).result()
        assert not [each for each in receipts if isinstance(each, Exception)]
    return vault


def _write(number: int, owner: str) -> DocumentWrite:
    user = owner or f"u{number}"
    fields = {
        "namespace": encode_namespace(Namespace(("users", user))),
        "expire_time": None if owner else START,
    }
    metadata = {"topic": number} if owner else {"topic": "text" if number % 2 else number, "theirs": number}
    document = Document(f"r{number}", "Tea, not coffee.", metadata, scope=Scope(user=user), fields=fields)
    return DocumentWrite(document=document, passages=[PassageInput(0, len(document.content), unit_vector(number))])
