"""What every vault must do: collections that share one order of changes, and the log of changes."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.changes import (
    CHANGES_OF_FACTS,
    CHANGES_OF_USERS,
    Change,
    ChangeFilter,
    ChangeLogState,
    ChangeType,
)
from mnemon_server.domain.collections import DOCUMENTS, MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import RequestIdReusedError, RevisionMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import RequestKey, Scope, WriteReceipt
from mnemon_server.engines.promises.values import IndexPosition
from mnemon_server.engines.promises.vault import Vault, VaultTransaction

from tests.contract.record_changes import FIELDS, apply, update
from tests.contract.vault_suite import START, ManualClock, VaultSuite, found_by_word, key, listed, unit_vector, write

EVERYTHING = ChangeFilter()


def changes(vault: Vault, after: int = 0, where: ChangeFilter = EVERYTHING) -> tuple[Change, ...]:
    return vault.changes.read(after, limit=10_000, where=where).changes


def put(vault: Vault, doc_id: str, content: str = "a text", **fields: Any) -> WriteReceipt:
    return vault.collection(DOCUMENTS).put_document(write(doc_id, content, **fields)).result()


def put_memory(vault: Vault, memory_id: str, **fields: Any) -> WriteReceipt:
    given = replace(write(memory_id, fields=FIELDS, **fields), change=ChangeType.MEMORY_CREATED)
    return vault.collection(MEMORIES).put_document(given).result()


class VaultContract(VaultSuite):
    """Every promise of `engines/promises/: Vault` and `ChangeLog`, as a test."""

    def test_collections_are_kept_apart(self, vault: Vault) -> None:
        documents, memories = vault.collection(DOCUMENTS), vault.collection(MEMORIES)
        assert vault.collection(DOCUMENTS) is documents
        put(vault, "same", "zebra", metadata={"n": 1})
        put_memory(vault, "same", content="lion", seed=3)
        assert found_by_word(documents, "zebra lion").keys() == {"same"}
        assert found_by_word(memories, "zebra") == {}
        assert not memories.has_metadata_key("n")
        assert len(documents.scan_vectors(unit_vector(0)).passage_ids) == 1
        documents.delete_document("same").result()
        assert (listed(documents), listed(memories)) == ([], ["same"])
        assert (documents.stats().document_count, memories.stats().document_count) == (0, 1)

    def test_collections_share_one_order_of_changes(self, vault: Vault) -> None:
        documents, memories = vault.collection(DOCUMENTS), vault.collection(MEMORIES)
        first, second, third = put(vault, "a"), put_memory(vault, "b"), put(vault, "c", seed=1)
        assert first.sequence < second.sequence < third.sequence
        assert documents.stats().sequence == third.sequence
        assert memories.stats().sequence == second.sequence
        missing = memories.delete_document("none").result()
        assert missing.sequence == second.sequence
        assert [change.doc_id for change in documents.changes_after(0, limit=9)] == ["a", "c"]

    def test_an_index_follows_its_own_collection(self, vault: Vault) -> None:
        documents, memories = vault.collection(DOCUMENTS), vault.collection(MEMORIES)
        documents.set_index_position("i", IndexPosition(0, "d")).result()
        put(vault, "a")
        put_memory(vault, "m")
        memories.delete_document("m").result()
        documents.delete_document("a").result()
        assert memories.index_position("i") == IndexPosition()
        assert memories.changes_after(0, limit=9) == []
        memories.set_index_position("i", IndexPosition(10**6, "m")).result()
        assert [change.doc_id for change in documents.changes_after(0, limit=9)] == ["a"]
        assert documents.index_position("i") == IndexPosition(0, "d")
        memories.set_index_position("slow", IndexPosition(0, "m")).result()
        documents.set_index_position("i", IndexPosition(10**6, "d")).result()
        assert documents.changes_after(0, limit=9) == []

    def test_a_request_id_is_unique_across_collections(self, vault: Vault) -> None:
        put(vault, "a", request=key("r", b"document"))
        with pytest.raises(RequestIdReusedError):
            put_memory(vault, "b", request=key("r", b"memory"))
        assert len(changes(vault)) == 1

    def test_a_listener_of_the_vault_hears_of_every_collection(self, vault: Vault) -> None:
        heard: list[int] = []
        end = vault.subscribe(lambda: heard.append(vault.changes.state().head))
        first, second = put(vault, "a"), put_memory(vault, "b")
        end()
        put(vault, "c", seed=1)
        assert heard == [first.sequence, second.sequence]

    # Changes

    def test_every_change_is_in_the_log_once(self, vault: Vault, clock: ManualClock) -> None:
        scope = Scope(user="u", household="h", persona="p", agent="a", project="x")
        created = put_memory(vault, "m", scope=scope, request=key("r"))
        clock.now += timedelta(seconds=1)
        updated = apply(vault.collection(MEMORIES), "m", metadata={"n": 1})
        memories = vault.collection(MEMORIES)
        deleted = memories.delete_document("m", request=RequestKey("q", b"q"), change=ChangeType.MEMORY_PURGED).result()
        assert changes(vault) == (
            Change(created.sequence, created.sequence, START, ChangeType.MEMORY_CREATED, "m", 1, scope, "r"),
            Change(
                updated.sequence,
                updated.sequence,
                clock.now,
                ChangeType.MEMORY_UPDATED,
                "m",
                2,
                scope,
                "",
                ("metadata.n",),
            ),
            Change(deleted.sequence, deleted.sequence, clock.now, ChangeType.MEMORY_PURGED, "m", 2, scope, "q"),
        )

    def test_a_replacement_names_the_fields_that_it_changed(self, vault: Vault) -> None:
        put(vault, "d", "old", metadata={"gone": 1, "same": 1, "type": 1}, scope=Scope(user="u"))
        put(vault, "d", "new", metadata={"new": 1, "same": 1, "type": 1.0}, scope=Scope(user="u", agent="a"))
        [_, change] = changes(vault)
        assert set(change.changed) == {"content", "metadata.gone", "metadata.new", "metadata.type", "scope.agent"}
        assert (change.type, change.scope) == (ChangeType.KNOWLEDGE_INDEXED, Scope(user="u", agent="a"))

    def test_a_change_of_fields_names_them_and_hiding_has_its_own_type(self, vault: Vault) -> None:
        put_memory(vault, "m")
        hide = update("m", lambda old: replace(old, hidden=True, fields={**old.fields, "delete_time": START}))
        vault.collection(MEMORIES).update_document(replace(hide, change=ChangeType.MEMORY_DELETED)).result()
        [_, change] = changes(vault)
        assert (change.type, change.changed) == (ChangeType.MEMORY_DELETED, ("delete_time",))

    def test_a_write_that_changes_nothing_is_not_in_the_log(self, vault: Vault) -> None:
        documents = vault.collection(DOCUMENTS)
        put(vault, "d", request=key("r"))
        put(vault, "d")
        put(vault, "d", request=key("r"))
        apply(documents, "d")
        documents.delete_document("none").result()
        documents.delete_documents(RecordFilter({"n": 1})).result()
        with pytest.raises(RevisionMismatchError):
            put(vault, "d", "other", expected_revision=7)

        def fail(old: Document) -> Document:
            raise RevisionMismatchError(old.doc_id, 1, 2)

        with pytest.raises(RevisionMismatchError):
            documents.update_document(update("d", fail)).result()
        assert [change.record_id for change in changes(vault)] == ["d"]
        assert put(vault, "e", seed=1).sequence == changes(vault)[-1].sequence

    def test_a_delete_by_filter_is_one_commit_of_many_changes(self, vault: Vault) -> None:
        for i in range(4):
            put(vault, f"d{i}", seed=i, metadata={"even": i % 2 == 0}, scope=Scope(user=f"u{i}"))
        head = vault.changes.state().head
        documents = vault.collection(DOCUMENTS)
        receipt = documents.delete_documents(RecordFilter({"even": True}), request=key("all")).result()
        documents.delete_documents(RecordFilter({"even": True}), request=key("all")).result()
        gone = changes(vault, head)
        assert [(change.record_id, change.type) for change in gone] == [
            ("d0", ChangeType.KNOWLEDGE_DELETED),
            ("d2", ChangeType.KNOWLEDGE_DELETED),
        ]
        assert {change.commit for change in gone} == {gone[0].sequence}
        assert [change.scope.user for change in gone] == ["u0", "u2"]
        assert {change.request_id for change in gone} == {"all"}
        assert receipt.sequence == gone[-1].sequence

    def test_time_in_the_log_never_goes_back(self, vault: Vault, clock: ManualClock) -> None:
        put(vault, "a")
        clock.now -= timedelta(days=2)
        put(vault, "b", seed=1)
        clock.now += timedelta(days=3)
        put(vault, "c", seed=2)
        assert [change.time for change in changes(vault)] == [START, START, START + timedelta(days=1)]

    def test_reading_continues_where_it_ended(self, vault: Vault) -> None:
        written = [put(vault, f"d{i}", seed=i).sequence for i in range(7)]
        first = vault.changes.read(0, limit=3, where=EVERYTHING)
        assert [change.sequence for change in first.changes] == written[:3]
        assert (first.position, first.caught_up) == (written[2], False)
        rest = vault.changes.read(first.position, limit=4, where=EVERYTHING)
        assert [change.sequence for change in rest.changes] == written[3:]
        assert (rest.position, rest.caught_up) == (written[6], True)
        nothing = vault.changes.read(rest.position, limit=4, where=EVERYTHING)
        assert (nothing.changes, nothing.position, nothing.caught_up) == ((), written[6], True)

    def test_filtered_reading_says_how_far_it_got(self, vault: Vault) -> None:
        for i in range(10):
            put(vault, f"d{i}", seed=i, scope=Scope(user="even" if i % 2 == 0 else "odd", agent="x"))
        put_memory(vault, "m")
        head = vault.changes.state().head

        def read(**wanted: Any) -> list[str]:
            found = vault.changes.read(0, limit=100, where=ChangeFilter(**wanted))
            assert (found.position, found.caught_up) == (head, True)
            return [change.record_id for change in found.changes]

        assert read(scope=Scope(user="odd", agent="x")) == ["d1", "d3", "d5", "d7", "d9"]
        assert read(types=frozenset({ChangeType.MEMORY_CREATED})) == ["m"]
        assert read(record_ids=frozenset({"d3", "m", "none"})) == ["d3", "m"]
        assert (
            read(types=frozenset({ChangeType.MEMORY_CREATED, ChangeType.MEMORY_PURGED}), scope=Scope(user="odd")) == []
        )
        two = vault.changes.read(0, limit=2, where=ChangeFilter(scope=Scope(user="odd")))
        assert (two.position, two.caught_up) == (two.changes[-1].sequence, False)

    @pytest.mark.parametrize(
        ("users", "namespaces", "expected"),
        [
            (["ada"], ["users.ada"], {"hers", "deleted", "f.ada", "f.ada.seats"}),
            (["ada"], [], {"hers", "deleted"}),
            ([], ["users", "a1"], {"f.ada", "f.ada.seats", "f.adam", "f.users", "f.a1"}),
            ([], ["*"], {"f.ada", "f.ada.seats", "f.adam", "f.users", "f.a1", "damaged", "old"}),
            (["*"], ["users.adam"], {"hers", "his", "no one's", "deleted", "f.adam"}),
            (["ada", "bob"], [], {"hers", "his", "deleted"}),
            (["carl"], ["users.ad"], set()),
        ],
    )
    def test_reading_within_bounds_finds_only_the_changes_of_these_users_and_namespaces(
        self, vault: Vault, users: list[str], namespaces: list[str], expected: set[str]
    ) -> None:
        for doc_id, user in (("hers", "ada"), ("his", "bob"), ("no one's", ""), ("deleted", "ada")):
            put(vault, doc_id, scope=Scope(user=user))
        vault.collection(DOCUMENTS).delete_document("deleted").result()

        def program(tx: VaultTransaction) -> str:
            for name in ("users.ada", "users.ada.seats", "users.adam", "users", "a1"):
                details = json.dumps({"namespace": name.split("."), "key": "k"})
                tx.note_change(ChangeType.FACT_DELETED, f"f.{name.removeprefix('users.')}", details=details)
            tx.note_change(ChangeType.FACT_DELETED, "damaged", details="{")
            tx.note_change(ChangeType.FACT_DELETED, "old")
            for kind in ChangeType:
                if kind not in CHANGES_OF_USERS | CHANGES_OF_FACTS:
                    tx.note_change(kind, "of the tenant", scope=Scope(user="ada"))
            return ""

        vault.transact(program).result()
        where = ChangeFilter(bounds=Bounds.of(users, namespaces))
        assert {change.record_id for change in changes(vault, where=where)} == expected
        assert [change for change in changes(vault) if where.matches(change)] == list(changes(vault, where=where))
        deleted = replace(where, types=frozenset({ChangeType.KNOWLEDGE_DELETED}))
        assert {change.record_id for change in changes(vault, where=deleted)} == expected & {"deleted"}

    def test_a_time_names_the_position_before_the_changes_at_it_or_later(
        self, vault: Vault, clock: ManualClock
    ) -> None:
        assert vault.changes.position_before(START) == 0
        sequences = []
        for i in range(5):
            clock.now = START + timedelta(hours=i)
            sequences += [put(vault, f"a{i}", seed=i).sequence, put(vault, f"b{i}", seed=i).sequence]
        for i in range(5):
            position = vault.changes.position_before(START + timedelta(hours=i))
            assert [change.sequence for change in changes(vault, position)] == sequences[2 * i :]
        assert changes(vault, vault.changes.position_before(START - timedelta(days=9))) == changes(vault)
        assert vault.changes.position_before(START + timedelta(days=9)) == sequences[-1]

    def test_a_new_log_is_empty_and_has_its_own_epoch(self, vault: Vault, tmp_path: Path) -> None:
        other = self.open_vault(tmp_path / "other", ManualClock())
        assert vault.changes.state() == ChangeLogState(0, 0, 0, None, None)
        found = vault.changes.read(0, limit=5, where=EVERYTHING)
        assert (found.changes, found.position, found.caught_up) == ((), 0, True)
        assert len(vault.changes.epoch) == 16
        assert vault.changes.epoch != other.changes.epoch
        other.close()

    def test_old_changes_are_trimmed_by_age_and_number_and_the_floor_moves(
        self, vault: Vault, clock: ManualClock
    ) -> None:
        sequences = []
        for i in range(10):
            clock.now = START + timedelta(hours=i)
            sequences.append(put(vault, f"d{i}", seed=i).sequence)
        log = vault.changes
        assert log.trim(before=START + timedelta(hours=3), keep_max=100).result() == 3
        assert log.state() == ChangeLogState(sequences[2], sequences[9], 7, START + timedelta(hours=3), clock.now)
        assert [change.sequence for change in changes(vault)] == sequences[3:]
        assert log.trim(before=START, keep_max=2).result() == 5
        assert log.trim(before=START, keep_max=2).result() == 0
        assert [change.sequence for change in changes(vault)] == sequences[8:]
        assert log.position_before(START) == sequences[7]
        assert log.trim(before=START + timedelta(days=1), keep_max=100).result() == 2
        assert log.state() == ChangeLogState(sequences[9], sequences[9], 0, None, clock.now)
        found = log.read(0, limit=5, where=EVERYTHING)
        assert (found.changes, found.position, found.caught_up) == ((), sequences[9], True)
        assert log.position_before(START) == sequences[9]
        clock.now -= timedelta(days=5)
        assert put(vault, "late", seed=50).sequence > sequences[9]
        assert [change.time for change in changes(vault)] == [START + timedelta(hours=9)]

    def test_changes_after_a_kept_position_stay_whatever_their_age_and_number(
        self, vault: Vault, clock: ManualClock
    ) -> None:
        sequences = []
        for i in range(6):
            clock.now = START + timedelta(hours=i)
            sequences.append(put(vault, f"d{i}", seed=i).sequence)
        log, later = vault.changes, START + timedelta(days=1)
        assert log.trim(before=later, keep_max=0, keep_after=0).result() == 0
        assert log.trim(before=START, keep_max=1, keep_after=sequences[1]).result() == 2
        assert log.state() == ChangeLogState(sequences[1], sequences[5], 4, START + timedelta(hours=2), clock.now)
        assert log.trim(before=later, keep_max=9, keep_after=sequences[2]).result() == 1
        assert log.trim(before=later, keep_max=9, keep_after=sequences[2]).result() == 0
        assert [change.sequence for change in changes(vault)] == sequences[3:]
        assert log.trim(before=START + timedelta(hours=4), keep_max=9, keep_after=sequences[5] + 9).result() == 1
        assert log.trim(before=later, keep_max=9, keep_after=None).result() == 2

    def test_the_log_holds_no_text_of_a_record(self, vault: Vault) -> None:
        put(vault, "d", "secretcontent", metadata={"key": "secretvalue"})
        put(vault, "d", "othersecret", metadata={"key": "anothersecret"})
        assert "secret" not in repr(changes(vault))


class DurableVaultContract(VaultContract):
    """Adds the promises of a vault on disk."""

    def test_the_log_is_there_after_reopening(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open_vault(tmp_path / "kept", clock)
        for i in range(5):
            clock.now += timedelta(hours=1)
            put(vault, f"d{i}", seed=i, scope=Scope(user="u"))
        apply(vault.collection(DOCUMENTS), "d1", metadata={"n": 1})
        vault.changes.trim(before=START, keep_max=4).result()
        before, state, epoch = changes(vault), vault.changes.state(), vault.changes.epoch
        vault.close()

        vault = self.open_vault(tmp_path / "kept", clock)
        assert (changes(vault), vault.changes.state(), vault.changes.epoch) == (before, state, epoch)
        clock.now -= timedelta(days=3)
        put(vault, "later", seed=9)
        assert changes(vault)[-1].time == before[-1].time
        vault.changes.trim(before=START + timedelta(days=1), keep_max=0).result()
        state = vault.changes.state()
        vault.close()

        vault = self.open_vault(tmp_path / "kept", clock)
        assert vault.changes.state() == state
        put(vault, "last", seed=10)
        assert [(change.time, change.record_id) for change in changes(vault)] == [(before[-1].time, "last")]
        vault.close()

    def test_hidden_documents_stay_hidden_after_reopening(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open_vault(tmp_path / "kept", clock)
        put_memory(vault, "shown", content="zebra")
        put_memory(vault, "hidden", content="zebra", seed=1)
        apply(vault.collection(MEMORIES), "hidden", hidden=True)
        vault.close()
        vault = self.open_vault(tmp_path / "kept", clock)
        memories = vault.collection(MEMORIES)
        assert found_by_word(memories, "zebra").keys() == {"shown"}
        assert len(memories.scan_vectors(unit_vector(0)).passage_ids) == 1
        assert (memories.stats().document_count, memories.stats().passage_count) == (2, 1)
        apply(memories, "hidden", hidden=False)
        assert found_by_word(memories, "zebra").keys() == {"shown", "hidden"}
        vault.close()
