"""What an erasure needs of every vault: tombstones, and the removal of what names erased records."""

from datetime import timedelta
from pathlib import Path

import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.engines.vault_folders import unfinished_tenants

from tests.contract.vault_suite import DIMENSION, START, ManualClock, VaultSuite, key, write

EVERYTHING = ChangeFilter()
LATER = START + timedelta(hours=1)


def entomb(vault: Vault, *keys: bytes, hours: int = 0) -> None:
    def program(tx: VaultTransaction) -> str:
        tx.entomb(keys, START + timedelta(hours=hours))
        return ""

    vault.transact(program).result()


def forget(vault: Vault, changes: list[int], answers: list[str]) -> int:
    return int(vault.transact(lambda tx: str(tx.forget(changes=changes, answers=answers))).result().answer)


def sequences(vault: Vault) -> list[int]:
    return [change.sequence for change in vault.changes.read(0, limit=100, where=EVERYTHING).changes]


class ErasureContract(VaultSuite):
    """Every promise of `engines/promises/: Vault` about erasures, as a test."""

    def test_tombstones_are_kept_with_their_latest_time(self, vault: Vault) -> None:
        entomb(vault, b"one", b"two", hours=1)
        entomb(vault, b"one", hours=0)
        entomb(vault, b"three")
        assert vault.tombstones(b"", limit=10) == [(b"one", LATER), (b"three", START), (b"two", LATER)]
        assert vault.tombstones(b"one", limit=1) == [(b"three", START)]
        found: dict[bytes, object] = {}

        def program(tx: VaultTransaction) -> str:
            found.update(tx.tombstones([b"two", b"four"]))
            return ""

        vault.transact(program).result()
        assert found == {b"two": LATER}

    def test_a_program_that_fails_leaves_no_tombstone_and_forgets_nothing(self, vault: Vault) -> None:
        vault.collection(DOCUMENTS).put_document(write("a", request=key("r"))).result()
        vault.collection(DOCUMENTS).put_document(write("b")).result()

        def program(tx: VaultTransaction) -> str:
            tx.entomb([b"one"], START)
            tx.forget(changes=sequences_before, answers=["r"])
            raise LookupError

        sequences_before = sequences(vault)
        with pytest.raises(LookupError):
            vault.transact(program).result()
        assert (vault.tombstones(b"", limit=10), sequences(vault)) == ([], sequences_before)
        assert vault.is_answered("r")
        assert vault.changes.state().count == 2

    def test_entries_of_the_log_are_forgotten_wherever_they_are_except_the_newest(self, vault: Vault) -> None:
        for name in "abcde":
            vault.collection(DOCUMENTS).put_document(write(name)).result()
        before = sequences(vault)
        assert forget(vault, [before[0], before[2], before[4]], []) == 2
        assert sequences(vault) == [before[1], before[3], before[4]]
        state = vault.changes.state()
        assert (state.count, state.head, state.floor) == (3, before[4], 0)
        vault.collection(DOCUMENTS).put_document(write("f")).result()
        assert forget(vault, [before[4]], []) == 1
        assert vault.changes.state().count == 3

    def test_answers_name_what_they_are_about_and_are_forgotten_by_their_ids(self, vault: Vault) -> None:
        vault.collection(DOCUMENTS).put_document(write("the-document", request=key("r1"))).result()
        vault.transact(lambda tx: '["the-other"]', request=key("r2")).result()
        assert [stored_id for stored_id, _ in vault.answers("", limit=10)] == ["r1", "r2"]
        [(_, first), (_, second)] = vault.answers("", limit=10)
        assert '"the-document"' in first and "the-other" in second
        assert vault.answers("r1", limit=1) == [("r2", second)]
        assert forget(vault, [], ["r1"]) == 1
        assert (vault.is_answered("r1"), vault.is_answered("r2")) == (False, True)

    def test_values_are_listed_by_prefix(self, vault: Vault) -> None:
        def program(tx: VaultTransaction) -> str:
            for name in ("a.2", "a.1", "b", "a%"):
                tx.set_value(name, name.upper())
            return ""

        vault.transact(program).result()
        assert [*vault.values("a.").items()] == [("a.1", "A.1"), ("a.2", "A.2")]


class TestSQLite(ErasureContract):
    """The vault on disk."""

    def open_vault(self, folder: Path, clock: ManualClock) -> SQLiteVault:
        """See VaultSuite."""
        return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, clock=clock)

    def test_all_of_it_outlives_a_restart(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open_vault(tmp_path / "records", clock)
        for name in "abcd":
            vault.collection(DOCUMENTS).put_document(write(name)).result()
        vault.transact(self._note).result()
        entomb(vault, b"one", hours=1)
        left = sequences(vault)
        assert forget(vault, left[:3], []) == 3
        vault.close()
        vault = self.open_vault(tmp_path / "records", clock)
        assert sequences(vault) == left[3:]
        assert vault.changes.state().count == 2
        assert vault.tombstones(b"", limit=10) == [(b"one", LATER)]
        vault.collection(DOCUMENTS).put_document(write("e")).result()
        assert sequences(vault)[-1] > left[-1]
        vault.close()

    def test_files_are_scanned_and_only_quarantined_ones_are_discarded(
        self, tmp_path: Path, clock: ManualClock
    ) -> None:
        folder = tmp_path / "default"
        vault = self.open_vault(folder, clock)
        vault.collection(DOCUMENTS).put_document(write("a", "a text about amber")).result()
        (folder / "quarantine").mkdir()
        (folder / "quarantine" / "old").write_bytes(b"some text about amber, too")
        marks = Marks.of([b"text about amber"])
        found = vault.scan(marks).found
        assert found.keys() >= {"quarantine/old"} and any(name.startswith("records.db") for name in found)
        vault.discard([*found])
        assert vault.scan(marks).found.keys() == found.keys() - {"quarantine/old"}
        vault.close()

    def test_unfinished_work_is_known_without_opening_the_vault(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open_vault(tmp_path / "default", clock)
        assert unfinished_tenants(tmp_path) == []
        vault.set_unfinished(is_unfinished=True)
        assert unfinished_tenants(tmp_path) == ["default"]
        vault.set_unfinished(is_unfinished=False)
        vault.set_unfinished(is_unfinished=False)
        assert unfinished_tenants(tmp_path) == []
        vault.close()

    @staticmethod
    def _note(tx: VaultTransaction) -> str:
        tx.note_change(ChangeType.RECORDS_ERASED, "erasure")
        return ""
