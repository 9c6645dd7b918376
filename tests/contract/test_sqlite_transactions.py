"""Transactions of a vault on SQLite keep the contract, also when they share a commit."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS, RULES, SEMANTIC
from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.related import RelatedQuery
from mnemon_server.engines.promises.vault import Vault, VaultTransaction

from tests.contract.sqlite_vaults import open_quantized, open_scanning_the_file, open_sqlite
from tests.contract.vault_suite import START, ManualClock, listed, unit_vector, write
from tests.contract.vault_transactions import DurableVaultTransactionsContract, changes, near, rule, statement
from tests.support.databases import contents_of

TIMEOUT_S = 60.0
SCOPE = Scope(user="u")


class TestSQLiteTransactions(DurableVaultTransactionsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestSQLiteTransactionsScanningTheFile(DurableVaultTransactionsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_scanning_the_file(folder, clock)


def in_one_commit(vault: Vault, *calls: Callable[[], Future[Any]]) -> list[Future[Any]]:
    """Makes calls while the writer is held, so that they are committed together. Waits for all of them."""
    entered, gate = threading.Event(), threading.Event()

    def hold(tx: VaultTransaction) -> str:
        entered.set()
        assert gate.wait(TIMEOUT_S)
        return ""

    held = vault.transact(hold)
    assert entered.wait(TIMEOUT_S)
    futures = [call() for call in calls]
    gate.set()
    held.result(TIMEOUT_S)
    for future in futures:
        future.exception(TIMEOUT_S)
    return futures


@pytest.fixture(params=[open_sqlite, open_quantized, open_scanning_the_file])
def vault(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    vault = request.param(tmp_path / "d", ManualClock())
    yield vault
    vault.close()


def test_a_program_that_raises_does_not_undo_others_in_its_commit(vault: Vault) -> None:
    records, runs = vault.collection(SEMANTIC), []

    def saving(memory_id: str, seed: int, *, fail: bool = False) -> Callable[[], Future[Any]]:
        def program(tx: VaultTransaction) -> str:
            runs.append(memory_id)
            tx.collection(SEMANTIC).put_document(statement(memory_id, f"word{memory_id}", seed=seed, scope=SCOPE))
            tx.collection(RULES).put_document(rule(memory_id))
            tx.set_value("last", memory_id)
            if fail:
                raise InvalidOperationError(memory_id)
            return memory_id

        return lambda: vault.transact(program)

    first, failed, put, second = in_one_commit(
        vault,
        saving("a", 1),
        saving("b", 2, fail=True),
        lambda: vault.collection(DOCUMENTS).put_document(write("d")),
        saving("c", 3),
    )

    assert (first.result().answer, second.result().answer, put.result().id) == ("a", "c", "d")
    assert isinstance(failed.exception(), InvalidOperationError)
    assert runs == ["a", "b", "a", "b", "c"]
    assert (listed(records), listed(vault.collection(RULES))) == (["a", "c"], ["a", "c"])
    assert [len(records.related_documents(near(seed))) for seed in (1, 2, 3)] == [1, 0, 1]
    assert (records.stats().document_count, records.stats().passage_count) == (2, 2)
    assert vault.value("last") == "c"
    noted = changes(vault)
    assert [change.record_id for change in noted] == ["a", "a", "d", "c", "c"]
    assert [change.commit for change in noted] == [
        noted[0].sequence,
        noted[0].sequence,
        noted[2].sequence,
        noted[3].sequence,
        noted[3].sequence,
    ]
    assert records.stats().sequence == noted[3].sequence


def test_a_program_sees_the_vectors_and_terms_of_calls_in_the_same_commit(vault: Vault) -> None:
    records = vault.collection(SEMANTIC)
    records.put_document(statement("old", seed=1, scope=SCOPE, terms=("x",))).result()
    records.put_document(statement("hidden", seed=2, scope=SCOPE, terms=("x",))).result()
    seen: list[list[str]] = []

    def look(tx: VaultTransaction) -> str:
        inside = tx.collection(SEMANTIC)
        queries = (near(1), near(3), RelatedQuery(user="u", terms=frozenset("x"), overlap_above=0.5))
        seen.extend([other.doc_id for other in inside.related_documents(query)] for query in queries)
        seen.append([document.doc_id for _, document in inside.list_documents(RecordFilter(), limit=9)])
        return ""

    in_one_commit(
        vault,
        lambda: records.put_document(statement("new", seed=3, scope=SCOPE, terms=("x", "y"))),
        lambda: records.delete_document("old"),
        lambda: records.put_document(statement("hidden", seed=2, scope=SCOPE, terms=("x",), hidden=True)),
        lambda: vault.transact(look),
    )

    assert seen == [[], ["new"], ["new"], ["new"]]


def test_readers_outside_a_program_see_only_what_is_committed(vault: Vault) -> None:
    records = vault.collection(SEMANTIC)
    found: list[list[str]] = []
    end = vault.subscribe(lambda: found.append([one.doc_id for one in records.related_documents(near(1))]))
    records.put_document(statement("a", seed=1, scope=SCOPE)).result()
    end()
    assert found[-1] == ["a"]

    def outside(tx: VaultTransaction) -> str:
        tx.collection(SEMANTIC).put_document(statement("b", seed=1, scope=SCOPE))
        found.append([one.doc_id for one in records.related_documents(near(1))])
        return ""

    vault.transact(outside).result()
    assert found[-1] == ["a"]
    assert [one.doc_id for one in records.related_documents(near(1))] == ["a", "b"]
    assert len(records.scan_vectors(unit_vector(1)).passage_ids) == 2


def test_the_terms_of_deleted_documents_leave_the_files(tmp_path: Path) -> None:
    vault = open_sqlite(tmp_path / "d", ManualClock())
    records = vault.collection(SEMANTIC)
    for i, term in enumerate(("aquamarine", "bergamot", "chrysalis")):
        records.put_document(statement(term, "x", seed=i, scope=SCOPE, terms=(term,))).result()

    def program(tx: VaultTransaction) -> str:
        tx.collection(SEMANTIC).delete_document("aquamarine", change=None)
        tx.collection(SEMANTIC).delete_documents(RecordFilter(), change=None)
        tx.collection(SEMANTIC).put_document(statement("d", "x", scope=SCOPE, terms=("dandelion",)))
        return ""

    vault.transact(program).result()
    vault.changes.trim(before=START, keep_max=0).result()
    vault.close()
    kept = contents_of(tmp_path / "d")
    assert b"dandelion" in kept
    assert [term for term in (b"aquamarine", b"bergamot", b"chrysalis") if term in kept] == []


def test_the_number_of_changes_is_right_after_any_changes_and_restarts(tmp_path: Path) -> None:
    """The file stores the number now and then. Later changes are counted."""
    folder, clock = tmp_path / "d", ManualClock()
    kept = 0

    def note(tx: VaultTransaction, count: int) -> str:
        for number in range(count):
            tx.note_change(ChangeType.RULE_UPDATED, f"r{number}")
        return ""

    for count, keep_max in ((9_999, None), (1, None), (3, None), (12_000, 5_000), (7, 4_999), (20_001, None), (0, 3)):
        vault = open_sqlite(folder, clock)
        vault.transact(partial(note, count=count)).result(TIMEOUT_S)
        kept += count
        if keep_max is not None:
            while vault.changes.trim(before=START, keep_max=keep_max).result(TIMEOUT_S):
                pass
            kept = keep_max
        assert vault.changes.state().count == kept
        vault.close()
        vault = open_sqlite(folder, clock)
        assert vault.changes.state().count == kept
        assert len(vault.changes.read(0, limit=100_000, where=ChangeFilter()).changes) == kept
        vault.close()
