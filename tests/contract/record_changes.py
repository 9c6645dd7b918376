"""What every collection of a vault must do when a document is changed, hidden and shown again."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import InvalidOperationError, RequestIdReusedError, RevisionMismatchError
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.records import RequestKey, Scope, WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, IndexPosition, PassageInput, RecordStamps

from tests.contract.vault_suite import START, ManualClock, VaultSuite, found_by_word, key, listed, unit_vector, write

FIELDS: dict[str, Any] = {
    "personality": "p",
    "type": "fact",
    "global": False,
    "decay_policy": "stable",
    "reinforce_time": None,
    "delete_time": None,
}


def update(doc_id: str, change: Callable[[Document], Document], **terms: Any) -> DocumentUpdate:
    return DocumentUpdate(doc_id=doc_id, update=change, change=ChangeType.MEMORY_UPDATED, **terms)


def apply(engine: RecordEngine, doc_id: str, **changes: Any) -> WriteReceipt:
    """Replaces the named fields of a document."""
    return engine.update_document(update(doc_id, lambda old: replace(old, **changes))).result()


def stored(engine: RecordEngine, doc_id: str, *, vectors: bool = False) -> Document:
    [document] = engine.get_documents([doc_id], vectors=vectors)
    assert document is not None
    return document


class ChangedVectorsContract(VaultSuite):
    """The promises that vectors have a part in, for each way of holding them."""

    collection = MEMORIES

    def test_an_update_with_passages_replaces_content_words_and_vectors(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "zebra", parts=1, fields=FIELDS)).result()
        passages = [PassageInput(0, 4, unit_vector(5)), PassageInput(5, 8, unit_vector(6))]
        change = update("a", lambda old: replace(old, content="lion cub"), passages=passages)
        assert engine.update_document(change).result().outcome is WriteOutcome.REPLACED
        assert found_by_word(engine, "zebra") == {}
        assert found_by_word(engine, "cub").keys() == {"a"}
        np.testing.assert_allclose(stored(engine, "a", vectors=True).passages[1].embedding, unit_vector(6), atol=1e-7)
        assert engine.stats().passage_count == 2

    def test_a_hidden_document_is_in_no_search_or_list_but_can_be_read(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "zebra crossing", parts=2, metadata={"n": 1}, fields=FIELDS)).result()
        engine.put_document(write("b", "zebra", seed=7, fields=FIELDS)).result()
        ids = engine.match_passages(RecordFilter())
        apply(engine, "a", hidden=True)

        assert stored(engine, "a").hidden
        assert stored(engine, "a", vectors=True).embedding == pytest.approx(unit_vector(0).tolist(), abs=1e-6)
        assert listed(engine) == ["b"]
        assert (listed(engine, RecordFilter(hidden=True)), engine.count_documents(RecordFilter(hidden=True))) == (
            ["a"],
            1,
        )
        assert listed(engine, RecordFilter(hidden=None)) == ["a", "b"]
        assert found_by_word(engine, "zebra").keys() == {"b"}
        [left] = engine.match_passages(RecordFilter()).tolist()
        assert engine.scan_vectors(unit_vector(0)).passage_ids.tolist() == [left]
        assert engine.scan_vectors(unit_vector(0), ids).passage_ids.tolist() == [left]
        assert [place.doc_id for place in engine.locate_passages(ids.tolist())] == ["b"]
        assert engine.filter_passages(ids, RecordFilter(hidden=None)).tolist() == [left]
        assert engine.match_passages(RecordFilter({"n": 1}, hidden=None)).size == 0
        assert (engine.stats().document_count, engine.stats().passage_count) == (2, 1)
        assert engine.vector_usage().flat_count == 1

    def test_a_document_that_is_shown_again_is_found_again_under_new_passage_ids(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "zebra crossing", parts=2, seed=3, fields=FIELDS)).result()
        old = engine.match_passages(RecordFilter()).tolist()
        apply(engine, "a", hidden=True)
        receipt = apply(engine, "a", hidden=False)
        new = engine.match_passages(RecordFilter()).tolist()
        assert receipt.revision == 3
        assert len(new) == 2 and not set(old) & set(new)
        assert found_by_word(engine, "zebra").keys() == {"a"}
        best = engine.scan_vectors(unit_vector(4), np.array(new[1:]))
        assert best.scores.tolist() == pytest.approx([1.0], abs=1e-6)
        assert [passage.start for passage in stored(engine, "a").passages] == [0, 7]

    def test_a_hidden_document_can_be_changed_deleted_and_replaced(self, engine: RecordEngine) -> None:
        for doc_id in ("changed", "deleted", "put"):
            engine.put_document(write(doc_id, f"{doc_id} zebra", fields=FIELDS)).result()
            apply(engine, doc_id, hidden=True)
        passages = [PassageInput(0, 4, unit_vector(8))]
        change = update("changed", lambda old: replace(old, content="lion"), passages=passages)
        engine.update_document(change).result()
        assert found_by_word(engine, "lion zebra") == {}
        assert engine.delete_document("deleted").result().outcome is WriteOutcome.DELETED
        engine.put_document(write("put", "tiger", seed=9, fields=FIELDS)).result()
        apply(engine, "changed", hidden=False)
        assert found_by_word(engine, "lion tiger zebra").keys() == {"changed", "put"}
        assert engine.stats().passage_count == 2 == len(engine.scan_vectors(unit_vector(0)).passage_ids)


class RecordChangesContract(ChangedVectorsContract):
    """The promises of `RecordEngine` about updates, hiding, fields and filters over them."""

    def test_fields_come_back_as_they_were_put(self, engine: RecordEngine) -> None:
        time = datetime(2025, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
        given = FIELDS | {"global": True, "reinforce_time": time, "personality": ""}
        engine.put_document(write("a", fields=given)).result()
        engine.put_document(write("b", seed=1, fields=FIELDS | {"global": None})).result()
        assert stored(engine, "a").fields == given
        assert stored(engine, "b").fields["global"] is None
        wanted = Condition("reinforce_time", Operator.EQ, (time,))
        assert listed(engine, RecordFilter(expression=wanted)) == ["a"]
        assert engine.put_document(write("a", fields=given)).result().outcome is WriteOutcome.UNCHANGED
        assert engine.put_document(write("a", fields=FIELDS)).result().outcome is WriteOutcome.REPLACED

    def test_an_update_sees_the_stored_document_and_changes_only_what_it_names(
        self, engine: RecordEngine, clock: ManualClock
    ) -> None:
        engine.put_document(write("a", "zebra", metadata={"n": 1, "m": 2}, fields=FIELDS, scope=Scope("u"))).result()
        before = stored(engine, "a", vectors=True)
        seen: list[Document] = []

        def change(old: Document) -> Document:
            seen.append(old)
            return replace(old, metadata={"n": 5}, fields={**old.fields, "type": "task"})

        clock.now += timedelta(hours=1)
        receipt = engine.update_document(update("a", change)).result()

        assert (receipt.outcome, receipt.revision, receipt.id) == (WriteOutcome.REPLACED, 2, "a")
        assert seen == [replace(before, embedding=None, passages=seen[0].passages)]
        after = stored(engine, "a", vectors=True)
        assert after == replace(
            before, metadata={"n": 5}, fields=FIELDS | {"type": "task"}, revision=2, update_time=clock.now
        )
        assert found_by_word(engine, "zebra").keys() == {"a"}
        assert listed(engine, RecordFilter({"n": 5})) == ["a"]
        assert listed(engine, RecordFilter({"n": 1})) == []
        assert not engine.has_metadata_key("m")

    def test_an_update_without_passages_keeps_them_and_their_ids(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "one two", parts=2, fields=FIELDS)).result()
        ids = engine.match_passages(RecordFilter()).tolist()
        apply(engine, "a", metadata={"k": "v"})
        assert engine.match_passages(RecordFilter()).tolist() == ids
        assert engine.stats().passage_count == 2

    def test_an_update_that_changes_nothing_writes_nothing(self, engine: RecordEngine) -> None:
        first = engine.put_document(write("a", fields=FIELDS)).result()
        receipt = apply(engine, "a")
        assert (receipt.outcome, receipt.revision, receipt.sequence) == (WriteOutcome.UNCHANGED, 1, first.sequence)
        assert engine.stats().sequence == first.sequence

    def test_an_update_of_a_missing_document_reports_it(self, engine: RecordEngine) -> None:
        receipt = apply(engine, "missing")
        assert (receipt.outcome, receipt.revision) == (WriteOutcome.MISSING, 0)
        assert listed(engine) == []

    def test_an_update_that_raises_changes_nothing(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", fields=FIELDS)).result()
        sequence = engine.stats().sequence

        def refuse(old: Document) -> Document:
            raise InvalidOperationError(f"{old.doc_id} cannot be reinforced")

        with pytest.raises(InvalidOperationError, match="a cannot be reinforced"):
            engine.update_document(update("a", refuse, request=key("r"))).result()
        assert (stored(engine, "a").revision, engine.stats().sequence) == (1, sequence)
        assert not engine.update_document(update("a", lambda old: old, request=key("r"))).result().replayed

    @pytest.mark.parametrize("change", [{"doc_id": "b"}, {"content": "other"}])
    def test_an_update_cannot_move_a_document_or_leave_its_passages_behind(
        self, engine: RecordEngine, change: dict[str, Any]
    ) -> None:
        engine.put_document(write("a", fields=FIELDS)).result()
        with pytest.raises(ValueError, match="must keep the document's id"):
            engine.update_document(update("a", lambda old: replace(old, **change))).result()
        assert (listed(engine), stored(engine, "a").revision) == (["a"], 1)

    def test_an_imported_document_keeps_its_times_and_its_revision(
        self, engine: RecordEngine, clock: ManualClock
    ) -> None:
        stamps = RecordStamps(START - timedelta(days=400), START - timedelta(days=30), 7)
        receipt = engine.put_document(write("a", "zebra", fields=FIELDS, stamps=stamps)).result()
        assert (receipt.outcome, receipt.revision, receipt.commit_time) == (WriteOutcome.CREATED, 7, clock.now)
        found = stored(engine, "a")
        assert (found.create_time, found.update_time, found.revision) == (stamps.create_time, stamps.update_time, 7)
        before = Condition("create_time", Operator.LT, (START - timedelta(days=399),))
        assert listed(engine, RecordFilter(expression=before)) == ["a"]
        assert found_by_word(engine, "zebra").keys() == {"a"}

        clock.now += timedelta(hours=1)
        receipt = apply(engine, "a", metadata={"n": 1})
        assert (receipt.revision, stored(engine, "a").create_time) == (8, stamps.create_time)
        assert stored(engine, "a").update_time == clock.now

    def test_an_import_with_the_same_times_changes_nothing_whatever_its_revision(self, engine: RecordEngine) -> None:
        stamps = RecordStamps(START - timedelta(days=2), START - timedelta(days=1), 7)
        first = engine.put_document(write("a", fields=FIELDS, stamps=stamps)).result()
        for revision in (7, 3, 9):
            again = write("a", fields=FIELDS, stamps=replace(stamps, revision=revision))
            receipt = engine.put_document(again).result()
            assert (receipt.outcome, receipt.revision) == (WriteOutcome.UNCHANGED, 7)
        assert engine.stats().sequence == first.sequence

    def test_a_revision_never_decreases_and_other_times_are_a_change(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "zebra", fields=FIELDS)).result()
        ids = engine.match_passages(RecordFilter()).tolist()
        stamps = RecordStamps(START - timedelta(days=2), START - timedelta(days=1), 1)
        receipt = engine.put_document(write("a", "zebra", fields=FIELDS, stamps=stamps, seed=4)).result()
        assert (receipt.outcome, receipt.revision) == (WriteOutcome.REPLACED, 2)
        assert (stored(engine, "a").create_time, stored(engine, "a").revision) == (stamps.create_time, 2)
        # The text is the same, so its passages and vectors are too.
        assert engine.match_passages(RecordFilter()).tolist() == ids
        np.testing.assert_allclose(stored(engine, "a", vectors=True).embedding, unit_vector(0), atol=1e-7)
        receipt = engine.put_document(write("a", "lion", fields=FIELDS, stamps=replace(stamps, revision=12))).result()
        assert (receipt.outcome, receipt.revision, stored(engine, "a").revision) == (WriteOutcome.REPLACED, 12, 12)
        assert found_by_word(engine, "zebra") == {}

    def test_a_stale_revision_refuses_an_update(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", fields=FIELDS)).result()
        called: list[Document] = []
        with pytest.raises(RevisionMismatchError, match="'a' has revision 1"):
            engine.update_document(update("a", lambda old: called.append(old) or old, expected_revision=2)).result()
        assert called == []

    def test_a_repeated_update_gets_the_first_answer_whatever_is_stored_now(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", metadata={"n": 0}, fields=FIELDS)).result()

        def count_up(request: RequestKey) -> WriteReceipt:
            def add(old: Document) -> Document:
                return replace(old, metadata={"n": int(str(old.metadata["n"])) + 1})

            return engine.update_document(update("a", add, request=request, expected_revision=1)).result()

        first = count_up(key("r"))
        assert count_up(key("r")) == replace(first, replayed=True)
        assert stored(engine, "a").metadata == {"n": 1}
        with pytest.raises(RequestIdReusedError):
            count_up(key("r", b"other"))

    def test_a_document_may_be_hidden_from_the_start(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "zebra", fields=FIELDS, hidden=True)).result()
        assert found_by_word(engine, "zebra") == {}
        assert engine.stats().passage_count == 0
        apply(engine, "a", hidden=False)
        assert found_by_word(engine, "zebra").keys() == {"a"}

    def test_indexes_drop_a_hidden_document_and_get_a_shown_one_back(self, engine: RecordEngine) -> None:
        engine.set_index_position("i", IndexPosition(0, "g")).result()
        engine.put_document(write("a", parts=2, content="one two", fields=FIELDS)).result()
        hidden = apply(engine, "a", hidden=True)
        [change] = engine.changes_after(0, limit=5)
        assert (change.sequence, change.doc_id, change.document, change.passage_ids) == (hidden.sequence, "a", None, ())
        shown = apply(engine, "a", hidden=False)
        [change] = engine.changes_after(hidden.sequence, limit=5)
        assert (change.sequence, change.document) == (shown.sequence, stored(engine, "a"))
        assert change.vectors is not None
        assert change.vectors.shape[0] == len(change.passage_ids) == 2

    def test_deleting_by_filter_takes_hidden_documents_only_on_request(self, engine: RecordEngine) -> None:
        for i in range(4):
            engine.put_document(write(f"d{i}", seed=i, fields=FIELDS, hidden=i % 2 == 0)).result()
        assert engine.delete_documents(RecordFilter(hidden=True)).result().deleted_count == 2
        assert engine.delete_documents(RecordFilter(hidden=True)).result().deleted_count == 0
        assert listed(engine, RecordFilter(hidden=None)) == ["d1", "d3"]

    def test_few_matching_passages_are_told_from_many(self, engine: RecordEngine) -> None:
        for i in range(6):
            owner, metadata = Scope(user="me" if i < 4 else "you"), {"even": i % 2 == 0}
            engine.put_document(write(f"d{i}", seed=i, metadata=metadata, scope=owner, fields=FIELDS)).result()
        for where in (RecordFilter(scope=Scope(user="me")), RecordFilter({"even": True}, scope=Scope(user="me"))):
            found = engine.match_few_passages(where, limit=4)
            assert found is not None
            assert found.tolist() == engine.match_passages(where).tolist()
            assert engine.match_few_passages(where, limit=1) is None
        nothing = engine.match_few_passages(RecordFilter({"even": "no"}), limit=0)
        assert nothing is not None
        assert nothing.size == 0

    def test_filtered_passages_keep_the_given_order(self, engine: RecordEngine) -> None:
        for i in range(6):
            engine.put_document(write(f"d{i}", seed=i, metadata={"even": i % 2 == 0}, fields=FIELDS)).result()
        ids = engine.match_passages(RecordFilter())
        given = ids[[5, 0, 3, 4, 2]]
        assert engine.filter_passages(given, RecordFilter({"even": True})).tolist() == ids[[0, 4, 2]].tolist()
        assert engine.filter_passages(np.append(given, 10**9), RecordFilter()).tolist() == given.tolist()

    def test_an_expression_filters_by_fields_times_and_metadata(self, engine: RecordEngine, clock: ManualClock) -> None:
        for i in range(3):
            clock.now = START + timedelta(days=i)
            fields = FIELDS | {"type": f"t{i}", "global": i == 1}
            engine.put_document(write(f"d{i}", f"text {i}", seed=i, metadata={"n": i}, fields=fields)).result()

        def matching(field: str, operator: Operator, *values: Any) -> list[str]:
            return listed(engine, RecordFilter(expression=Condition(field, operator, values)))

        assert matching("create_time", Operator.GTE, START + timedelta(days=1)) == ["d1", "d2"]
        assert matching("type", Operator.IN, "t0", "t2") == ["d0", "d2"]
        assert matching("global", Operator.EQ, True) == ["d1"]
        assert matching("metadata.n", Operator.LT, 1.5) == ["d0", "d1"]
        assert matching("id", Operator.NE, "d0") == ["d1", "d2"]
        assert matching("content", Operator.CONTAINS, "t 2") == ["d2"]
        assert matching("reinforce_time", Operator.EXISTS, False) == ["d0", "d1", "d2"]
