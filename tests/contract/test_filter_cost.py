"""A filter costs what it selects, not what is stored beside it. The cost is counted in steps of SQLite's machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.confidence import DEFAULT_DECAY, ConfidenceModel
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import AllOf, Condition, Expression, NoneOf, Operator, RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite.documents import DocumentTable
from mnemon_server.engines.sqlite.filters.plan import BOUNDS, matching_passages, prepare_positions
from mnemon_server.engines.sqlite.passage_map import PassageMap
from mnemon_server.engines.sqlite.schema import open_reader

from tests.contract.sqlite_vaults import open_sqlite
from tests.contract.vault_suite import START, ManualClock, unit_vector
from tests.support.databases import keys_of

OWN, OTHERS_FEW, OTHERS_MANY = 20, 2 * BOUNDS[0], 5 * BOUNDS[0]
STEPS_MARGIN = 1.1
MINE = Scope(user="me")
TABLE = DocumentTable(MEMORIES)


def topic(operator: Operator, *values: int) -> Condition:
    return Condition("metadata.topic", operator, values)


LASTING = ConfidenceModel(DEFAULT_DECAY).at_least(0.1, START)
NOTES = Condition("type", Operator.EQ, ("note",))
SEVEN_BUT_NOT_TWO: Expression = AllOf((topic(Operator.EQ, 7), NoneOf((Condition("metadata.kind", Operator.EQ, (2,)),))))
FILTERS = {
    "user": RecordFilter(scope=MINE),
    "user, also hidden": RecordFilter(scope=MINE, hidden=None),
    "user and confidence": RecordFilter(scope=MINE, expression=LASTING),
    "user and the type of all": RecordFilter(scope=MINE, expression=NOTES),
    "user and a common value": RecordFilter({"kind": 1}, scope=MINE),
    "value": RecordFilter({"topic": 7}),
    "value and confidence": RecordFilter({"topic": 7}, expression=LASTING),
    "value and the type of all": RecordFilter({"topic": 7}, expression=NOTES),
    "value and a common value": RecordFilter({"kind": 1, "topic": 7}),
    "value, but not another": RecordFilter(expression=SEVEN_BUT_NOT_TWO),
    "one of several values": RecordFilter(expression=topic(Operator.IN, 7, 8, 9)),
    "range of values": RecordFilter(expression=topic(Operator.LT, 10)),
}
READS: dict[str, Callable[[apsw.Connection, PassageMap, RecordFilter], Any]] = {
    "search": lambda connection, passages, where: matching_passages(connection, TABLE.tables, passages, where),
    "count": lambda connection, _, where: TABLE.count(connection, where),
    "list": lambda connection, _, where: TABLE.page(connection, where, after=0, limit=50, vectors=False),
    "list backwards": lambda connection, _, where: TABLE.page(
        connection, where, after=0, limit=50, vectors=False, descending=True
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The records of two vaults with the same documents of one user, among few and among many of others."""
    return [_filled(tmp_path_factory.mktemp("vault"), others) for others in (OTHERS_FEW, OTHERS_MANY)]


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
def test_what_others_store_costs_a_filter_nothing(
    files: list[Path], where: RecordFilter, read: Callable[[apsw.Connection, PassageMap, RecordFilter], Any]
) -> None:
    among_few, among_many = (_steps(file, where, read) for file in files)
    assert among_many <= STEPS_MARGIN * among_few


def test_documents_that_are_counted_by_a_value_are_not_read(files: list[Path]) -> None:
    with open_reader(files[0], keys_of(files[0])) as connection:
        source, parameters = prepare_positions(connection, TABLE.tables, RecordFilter({"topic": 7}))
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN SELECT count(*) {source}", parameters)]
    reads = [step for step in plan if step.startswith(("SEARCH", "SCAN"))]
    assert reads
    assert all("COVERING INDEX" in step or f"{TABLE.tables.metadata} USING PRIMARY KEY" in step for step in reads), (
        reads
    )


def _filled(folder: Path, others: int) -> Path:
    vault = open_sqlite(folder, ManualClock())
    size = OWN + others
    # Spread over the vault, as they are when many users write at the same time.
    own = set(np.linspace(0, size - 1, OWN, dtype=int).tolist())
    writes = [_write(number, own=number in own) for number in range(size)]
    assert len(own) == OWN
    assert not [
        each for each in vault.collection(MEMORIES).put_documents(writes).result() if isinstance(each, Exception)
    ]
    vault.close()
    return folder / "records.db"


def _write(number: int, *, own: bool) -> DocumentWrite:
    document = Document(
        f"m{number}",
        "Tea, not coffee.",
        {"topic": 7 if own else 100 + number % 7, "kind": 1},
        scope=Scope(user="me" if own else f"u{number % 7}"),
        fields={"type": "note", "decay_policy": "contextual"},
    )
    return DocumentWrite(document=document, passages=[PassageInput(0, len(document.content), unit_vector(number))])


def _steps(file: Path, where: RecordFilter, read: Callable[[apsw.Connection, PassageMap, RecordFilter], Any]) -> int:
    """The steps of all statements of a read that finds something."""
    profiles: list[dict[str, Any]] = []
    with open_reader(file, keys_of(file)) as connection:
        passages = PassageMap(TABLE.tables, connection)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiles.append)
        found = read(connection, passages, where)
        assert found if isinstance(found, int | list) else len(found)
    return sum(profile["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"] for profile in profiles)
