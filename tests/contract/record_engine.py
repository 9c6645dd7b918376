"""What every collection of a vault must do: the suite behind `RecordEngine`. Subclass it and open a vault."""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import RequestIdReusedError, RevisionMismatchError, StorageFailedError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope, WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, IndexPosition
from mnemon_server.engines.promises.vault import Vault

from tests.contract.vault_suite import START, ManualClock, VaultSuite, found_by_word, key, listed, unit_vector, write


class StoredVectorsContract(VaultSuite):
    """The promises that vectors have a part in, for each way of holding them."""

    def test_vectors_come_only_when_asked_for(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", "one two", parts=2, seed=3)).result()
        [plain], [full] = engine.get_documents(["d"]), engine.get_documents(["d"], vectors=True)
        assert plain is not None and full is not None
        assert plain.embedding is None
        assert len(plain.passages) == 2
        np.testing.assert_allclose(full.embedding, unit_vector(3), atol=1e-7)
        np.testing.assert_allclose(full.passages[1].embedding, unit_vector(4), atol=1e-7)

    def test_replacing_leaves_nothing_of_the_old_document(self, engine: RecordEngine, clock: ManualClock) -> None:
        engine.put_document(write("d", "zebra crossing", parts=2, metadata={"old": 1, "both": 1}, seed=1)).result()
        clock.now += timedelta(hours=1)
        receipt = engine.put_document(write("d", "giraffe", metadata={"both": 2}, seed=9)).result()

        [document] = engine.get_documents(["d"])
        assert (receipt.outcome, receipt.revision) == (WriteOutcome.REPLACED, 2)
        assert document is not None
        assert document.metadata == {"both": 2}
        assert (document.create_time, document.update_time) == (START, START + timedelta(hours=1))
        assert found_by_word(engine, "zebra crossing") == {}
        assert found_by_word(engine, "giraffe").keys() == {"d"}
        assert listed(engine, RecordFilter({"old": 1})) == []
        assert not engine.has_metadata_key("old")
        assert len(engine.scan_vectors(unit_vector(9)).passage_ids) == 1

    def test_a_deleted_document_is_not_found(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", "zebra", metadata={"n": 1})).result()
        engine.put_document(write("e", "other", seed=1)).result()
        receipt = engine.delete_document("d").result()
        assert (receipt.outcome, receipt.revision) == (WriteOutcome.DELETED, 1)
        assert engine.get_documents(["d"]) == [None]
        assert listed(engine) == ["e"]
        assert found_by_word(engine, "zebra") == {}
        assert len(engine.scan_vectors(unit_vector(0)).passage_ids) == 1
        assert engine.match_passages(RecordFilter({"n": 1})).size == 0
        assert engine.delete_document("d").result().outcome is WriteOutcome.MISSING

    def test_documents_that_are_put_together_end_as_those_put_one_by_one(self, engine: RecordEngine) -> None:
        first = engine.put_document(write("known", "zebra")).result()
        sent = engine.put_document(write("sent", "one", seed=1, request=key("sent"))).result()

        writes = [
            write("a", "lion", seed=2, metadata={"n": 1}, request=key("a")),
            write("known", "zebra"),
            write("known", "tiger", seed=3),
            write("b", "lion cub", parts=2, seed=4),
            write("missing", expected_revision=3),
            write("a", "lion", seed=2, metadata={"n": 1}, request=key("a")),
            write("b", "bear", seed=6),
            write("other", request=key("a", b"other")),
            write("sent", "one", seed=1, request=key("sent")),
            write("a", expected_revision=0),
            write("c", "lion", seed=7, expected_revision=0),
        ]
        results = engine.put_documents(writes).result()

        created, unchanged, replaced, part, stale, again, later, reused, replayed, taken, last = results
        assert [error.__class__ for error in (stale, reused, taken)] == [
            RevisionMismatchError,
            RequestIdReusedError,
            RevisionMismatchError,
        ]
        assert isinstance(created, WriteReceipt)
        assert again == replace(created, replayed=True)
        assert replayed == replace(sent, replayed=True)
        assert unchanged.sequence == first.sequence
        outcomes = [
            (receipt.outcome, receipt.revision) for receipt in (created, unchanged, replaced, part, later, last)
        ]
        assert outcomes == [
            (WriteOutcome.CREATED, 1),
            (WriteOutcome.UNCHANGED, 1),
            (WriteOutcome.REPLACED, 2),
            (WriteOutcome.CREATED, 1),
            (WriteOutcome.REPLACED, 2),
            (WriteOutcome.CREATED, 1),
        ]
        assert created.sequence < replaced.sequence < part.sequence < later.sequence < last.sequence
        assert listed(engine) == ["known", "sent", "a", "b", "c"]
        assert found_by_word(engine, "lion").keys() == {"a", "c"}
        assert found_by_word(engine, "bear").keys() == {"b"}
        assert engine.count_documents(RecordFilter({"n": 1})) == 1
        assert engine.scan_vectors(unit_vector(7)).scores.max() == pytest.approx(1.0, abs=1e-6)
        assert engine.stats().document_count == 5 == len(engine.scan_vectors(unit_vector(0)).passage_ids)
        changes = engine.changes_after(sent.sequence, limit=9)
        assert [change.doc_id for change in changes] == ["a", "known", "b", "c"]

    def test_a_scan_is_the_exact_cosine_of_every_passage(self, engine: RecordEngine) -> None:
        for i in range(300):
            engine.put_document(write(f"d{i}", seed=i, metadata={"third": i % 3})).result()
        for i in range(0, 300, 5):
            engine.delete_document(f"d{i}").result()
        query = unit_vector(1000)
        scores = engine.scan_vectors(query)
        exact = {f"d{i}": float(unit_vector(i) @ query) for i in range(300) if i % 5}
        places = {place.passage_id: place.doc_id for place in engine.locate_passages(scores.passage_ids.tolist())}
        assert {places[p]: s for p, s in zip(scores.passage_ids.tolist(), scores.scores, strict=True)} == pytest.approx(
            exact, abs=1e-6
        )
        among = engine.match_passages(RecordFilter({"third": 1}))
        assert sorted(engine.scan_vectors(query, among).passage_ids.tolist()) == among.tolist()
        assert engine.scan_vectors(query, np.array([10**12])).passage_ids.size == 0

    def test_changes_name_each_document_once_in_order(self, engine: RecordEngine) -> None:
        engine.set_index_position("index", IndexPosition(0, "g")).result()
        engine.put_document(write("a", seed=1)).result()
        engine.put_document(write("b", "x y", parts=2, seed=2)).result()
        engine.put_document(write("a", "changed", seed=7)).result()
        engine.put_document(write("c", seed=8)).result()
        engine.delete_document("c").result()
        changes = engine.changes_after(0, limit=10)
        assert [(change.doc_id, change.document is None) for change in changes] == [
            ("b", False),
            ("a", False),
            ("c", True),
        ]
        assert changes[0].vectors is not None
        np.testing.assert_allclose(changes[0].vectors, np.stack([unit_vector(2), unit_vector(3)]), atol=1e-7)
        assert list(changes[0].passage_ids) == sorted(changes[0].passage_ids)
        assert [change.doc_id for change in engine.changes_after(changes[0].sequence, limit=1)] == ["a"]
        assert engine.count_changes_after(changes[0].sequence) == 2
        assert engine.stats().sequence == changes[-1].sequence

    def test_many_concurrent_writers_and_readers_agree(self, engine: RecordEngine) -> None:
        def work(worker: int) -> None:
            for i in range(20):
                engine.put_document(write(f"w{worker}-{i % 5}", f"text {worker} {i}", seed=worker * 100 + i)).result()
                engine.scan_vectors(unit_vector(i))
                engine.search_keywords(f"text {worker}")
                if i % 7 == 0:
                    engine.delete_document(f"w{worker}-{i % 5}").result()

        with ThreadPoolExecutor(8) as pool:
            wait([pool.submit(work, worker) for worker in range(8)])
            for future in [pool.submit(work, worker) for worker in range(8)]:
                future.result()
        stats = engine.stats()
        assert stats.document_count == stats.passage_count == len(engine.scan_vectors(unit_vector(0)).passage_ids)
        revisions = [document.revision for _, document in engine.list_documents(RecordFilter(), limit=100)]
        assert len(revisions) == stats.document_count

    def test_everything_is_there_after_reopening(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open_vault(tmp_path / "kept", clock)
        engine = vault.collection(self.collection)
        engine.set_index_position("i", IndexPosition(0, "g")).result()
        engine.put_document(write("a", "zebra stripes", metadata={"n": 1}, request=key("r"))).result()
        gone = engine.put_document(write("b", seed=1)).result()
        engine.delete_document("b").result()
        before = engine.get_documents(["a"], vectors=True)
        vault.close()

        vault = self.open_vault(tmp_path / "kept", clock)
        engine = vault.collection(self.collection)
        assert engine.get_documents(["a"], vectors=True) == before
        assert found_by_word(engine, "zebra").keys() == {"a"}
        assert engine.scan_vectors(unit_vector(0)).scores.tolist() == pytest.approx([1.0], abs=1e-6)
        assert engine.put_document(write("a", "zebra stripes", metadata={"n": 1}, request=key("r"))).result().replayed
        assert [change.doc_id for change in engine.changes_after(gone.sequence, limit=5)] == ["b"]
        engine.set_index_position("i", IndexPosition(engine.stats().sequence, "g")).result()
        last = engine.stats().sequence
        vault.close()

        vault = self.open_vault(tmp_path / "kept", clock)
        engine = vault.collection(self.collection)
        assert engine.put_document(write("c", seed=4)).result().sequence > last
        vault.close()


class RecordEngineContract(StoredVectorsContract):
    """The promises of `engines/promises/: RecordEngine`, as tests. Those about changes are in `record_changes.py`."""

    def test_a_document_comes_back_as_it_was_put(self, engine: RecordEngine) -> None:
        metadata = {
            "text": "é\"'%$[]",
            "whole": 2**62,
            "number": 5.0,
            "yes": True,
            "list": ("b", "a", "b"),
            "none": (),
            "time": datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
        }
        scope = Scope(user="u", project="p")
        receipt = engine.put_document(write("d", "Grüße 👋 東京", metadata=metadata, scope=scope)).result()

        [document] = engine.get_documents(["d"])

        assert (receipt.id, receipt.outcome, receipt.revision) == ("d", WriteOutcome.CREATED, 1)
        assert receipt.commit_time == START
        assert document is not None
        assert document.content == "Grüße 👋 東京"
        assert document.metadata == metadata
        assert {name: type(value) for name, value in document.metadata.items()} == {
            name: type(value) for name, value in metadata.items()
        }
        assert (document.scope, document.revision, document.create_time) == (scope, 1, START)

    def test_missing_documents_are_none_in_the_order_asked_for(self, engine: RecordEngine) -> None:
        engine.put_document(write("b")).result()
        engine.put_document(write("a", seed=1)).result()
        found = engine.get_documents(["a", "missing", "b"])
        assert [document.doc_id if document else None for document in found] == ["a", None, "b"]

    def test_putting_the_same_again_writes_nothing(self, engine: RecordEngine) -> None:
        first = engine.put_document(write("d", "same", metadata={"n": 1})).result()
        again = engine.put_document(write("d", "same", metadata={"n": 1})).result()
        other_type = engine.put_document(write("d", "same", metadata={"n": 1.0})).result()
        assert (again.outcome, again.revision, again.sequence) == (WriteOutcome.UNCHANGED, 1, first.sequence)
        assert (other_type.outcome, other_type.revision) == (WriteOutcome.REPLACED, 2)

    def test_a_document_stored_again_after_deletion_starts_at_revision_one(self, engine: RecordEngine) -> None:
        engine.put_document(write("a")).result()
        engine.put_document(write("b", seed=1)).result()
        engine.delete_document("a").result()
        assert engine.put_document(write("a")).result().revision == 1
        assert listed(engine) == ["b", "a"]

    def test_deleting_by_filter_takes_what_matches_and_nothing_else(self, engine: RecordEngine) -> None:
        for i in range(10):
            engine.put_document(write(f"d{i}", seed=i, metadata={"even": i % 2 == 0})).result()
        assert engine.delete_documents(RecordFilter({"even": True})).result().deleted_count == 5
        assert listed(engine) == ["d1", "d3", "d5", "d7", "d9"]
        assert engine.delete_documents(RecordFilter({"even": True})).result().deleted_count == 0

    @pytest.mark.parametrize("wrong", [0, 2, 7])
    def test_a_stale_revision_changes_nothing(self, engine: RecordEngine, wrong: int) -> None:
        engine.put_document(write("d", "first")).result()
        with pytest.raises(RevisionMismatchError, match="'d' has revision 1"):
            engine.put_document(write("d", "second", expected_revision=wrong)).result()
        with pytest.raises(RevisionMismatchError):
            engine.delete_document("d", expected_revision=wrong).result()
        [document] = engine.get_documents(["d"])
        assert document is not None
        assert document.content == "first"
        assert engine.put_document(write("d", "third", expected_revision=1)).result().revision == 2

    def test_revision_zero_means_that_it_must_not_exist(self, engine: RecordEngine) -> None:
        assert engine.put_document(write("d", expected_revision=0)).result().revision == 1
        with pytest.raises(RevisionMismatchError):
            engine.put_document(write("missing", expected_revision=1)).result()

    def test_a_missing_document_is_missing_whatever_revision_is_expected(self, engine: RecordEngine) -> None:
        for wrong in (0, 1, 7):
            assert engine.delete_document("none", expected_revision=wrong).result().outcome is WriteOutcome.MISSING
            change = DocumentUpdate(
                doc_id="none", update=lambda old: old, change=ChangeType.KNOWLEDGE_INDEXED, expected_revision=wrong
            )
            assert engine.update_document(change).result().outcome is WriteOutcome.MISSING

    def test_a_repeated_request_id_gets_the_first_answer(self, engine: RecordEngine) -> None:
        first = engine.put_document(write("d", "one", request=key("r"))).result()
        engine.put_document(write("d", "two")).result()
        again = engine.put_document(write("d", "one", request=key("r"))).result()
        assert again == replace(first, replayed=True)
        [document] = engine.get_documents(["d"])
        assert document is not None
        assert document.content == "two"

    def test_a_request_id_replays_deletes_too(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", metadata={"n": 1})).result()
        assert engine.delete_document("a", request=key("one")).result().outcome is WriteOutcome.DELETED
        engine.put_document(write("a", metadata={"n": 1})).result()
        assert engine.delete_document("a", request=key("one")).result().replayed
        assert engine.delete_documents(RecordFilter({"n": 1}), request=key("all")).result().deleted_count == 1
        engine.put_document(write("b", metadata={"n": 1})).result()
        replayed = engine.delete_documents(RecordFilter({"n": 1}), request=key("all")).result()
        assert (replayed.deleted_count, replayed.replayed) == (1, True)
        assert listed(engine) == ["b"]

    def test_a_request_id_used_for_another_request_is_refused(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", request=key("r"))).result()
        with pytest.raises(RequestIdReusedError, match="'r'"):
            engine.put_document(write("e", request=key("r", b"other"))).result()
        assert listed(engine) == ["d"]

    def test_a_request_id_is_free_again_after_a_failure_and_after_a_day(
        self, engine: RecordEngine, clock: ManualClock
    ) -> None:
        with pytest.raises(RevisionMismatchError):
            engine.put_document(write("d", request=key("r"), expected_revision=4)).result()
        assert not engine.put_document(write("d", request=key("r", b"other"))).result().replayed
        clock.now += timedelta(hours=24)
        assert not engine.put_document(write("e", request=key("r"), seed=1)).result().replayed

    def test_no_documents_can_be_put_together(self, engine: RecordEngine) -> None:
        assert engine.put_documents([]).result() == []

    def test_filters_compare_numbers_by_value_and_combine_with_and(self, engine: RecordEngine) -> None:
        values: dict[str, Any] = {"int": 1, "float": 1.0, "bool": True, "text": "1", "long": "x" * 300}
        for i, (name, value) in enumerate(values.items()):
            engine.put_document(write(name, seed=i, metadata={"value": value, "half": i % 2})).result()
        for value, names in ((1, ["int", "float"]), (1.0, ["int", "float"]), (True, ["bool"]), ("1", ["text"])):
            assert listed(engine, RecordFilter({"value": value})) == names
            assert engine.has_metadata_key("value", like=value)
        assert listed(engine, RecordFilter({"value": values["long"]})) == ["long"]
        assert listed(engine, RecordFilter({"value": 1, "half": 0.0})) == ["int"]
        assert listed(engine, RecordFilter({"value": 1, "half": 2})) == []
        assert not engine.has_metadata_key("half", like=True)
        assert engine.has_metadata_key("half", like=0.5)
        engine.put_document(write("list", seed=9, metadata={"items": ("a",), "none": (), "at": START})).result()
        assert [engine.has_metadata_key(key, like=()) for key in ("items", "none", "at")] == [True, True, False]
        assert [engine.has_metadata_key(key, like=START) for key in ("items", "at")] == [False, True]
        assert engine.count_documents(RecordFilter({"half": 0})) == 3
        assert listed(engine, RecordFilter({"missing": 1})) == []

    def test_a_scope_filter_compares_only_the_fields_that_are_set(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", scope=Scope(user="u", agent="x"))).result()
        engine.put_document(write("b", seed=1, scope=Scope(user="u"))).result()
        engine.put_document(write("c", seed=2, scope=Scope(user="v"), metadata={"n": 1})).result()
        assert listed(engine, RecordFilter(scope=Scope(user="u"))) == ["a", "b"]
        assert listed(engine, RecordFilter(scope=Scope(user="u", agent="x"))) == ["a"]
        assert listed(engine, RecordFilter({"n": 1}, Scope(user="u"))) == []

    @pytest.mark.parametrize("hostile", ["' OR 1=1 --", "x') is null or 1=1 or ('", "$ne", "%", '"', "a.b[0]"])
    def test_keys_and_values_are_only_data(self, engine: RecordEngine, hostile: str) -> None:
        engine.put_document(write("plain", metadata={"k": "v"})).result()
        engine.put_document(write("odd", seed=1, metadata={"k": hostile})).result()
        assert listed(engine, RecordFilter({"k": hostile})) == ["odd"]
        assert listed(engine, RecordFilter({hostile: "v"})) == []
        assert listed(engine, RecordFilter(scope=Scope(user=hostile))) == []
        assert found_by_word(engine, hostile + " plain OR NOT text:").keys() <= {"plain", "odd"}

    def test_pages_neither_repeat_nor_skip_documents_that_stay(self, engine: RecordEngine) -> None:
        for i in range(9):
            engine.put_document(write(f"d{i}", seed=i)).result()
        first = engine.list_documents(RecordFilter(), limit=4)
        engine.put_document(write("d1", "changed", seed=20)).result()
        engine.put_document(write("new", seed=21)).result()
        engine.delete_document("d4").result()
        rest = engine.list_documents(RecordFilter(), after=first[-1][0], limit=100)
        assert [document.doc_id for _, document in first] == ["d0", "d1", "d2", "d3"]
        assert [document.doc_id for _, document in rest] == ["d5", "d6", "d7", "d8", "new"]

    def test_descending_pages_begin_with_the_last_indexed(self, engine: RecordEngine) -> None:
        for i in range(9):
            engine.put_document(write(f"d{i}", seed=i, scope=Scope(user="ada" if i % 3 else "grace"))).result()
        first = engine.list_documents(RecordFilter(), limit=4, descending=True)
        engine.put_document(write("d1", "changed", seed=20)).result()
        engine.put_document(write("new", seed=21)).result()
        engine.delete_document("d4").result()
        rest = engine.list_documents(RecordFilter(), after=first[-1][0], limit=100, descending=True)
        assert [document.doc_id for _, document in first] == ["d8", "d7", "d6", "d5"]
        assert [document.doc_id for _, document in rest] == ["d3", "d2", "d1", "d0"]
        of_grace = engine.list_documents(RecordFilter(scope=Scope(user="grace")), limit=2, descending=True)
        assert [document.doc_id for _, document in of_grace] == ["d6", "d3"]

    def test_keywords_match_stemmed_without_case_accents_and_stop_words(self, engine: RecordEngine) -> None:
        engine.put_document(write("cafe", "The Café was running late")).result()
        engine.put_document(write("other", "the the the was", seed=1)).result()
        assert found_by_word(engine, "CAFE").keys() == {"cafe"}
        assert found_by_word(engine, "runs").keys() == {"cafe"}
        assert found_by_word(engine, "the café").keys() == {"cafe"}
        assert found_by_word(engine, "?!").keys() == set()
        assert found_by_word(engine, "").keys() == set()

    def test_keywords_match_within_runs_of_cjk(self, engine: RecordEngine) -> None:
        engine.put_document(write("zh", "我喜欢在东京旅行")).result()
        engine.put_document(write("ja", "京都は静かです", seed=1)).result()
        assert found_by_word(engine, "东京").keys() == {"zh"}
        assert found_by_word(engine, "静か").keys() == {"ja"}

    def test_keyword_scores_are_relative_to_the_query(self, engine: RecordEngine) -> None:
        text = "quarterly report about solar panels"
        for i in range(20):
            engine.put_document(write(f"d{i}", f"filler number {i} about weather", seed=i)).result()
        engine.put_document(write("same", text, seed=50)).result()
        engine.put_document(write("part", "solar energy is something quite different", seed=51)).result()
        scores = found_by_word(engine, text)
        assert scores["same"] == pytest.approx(1.0, abs=0.03)
        assert 0 < scores["part"] < 0.6
        assert all(0 <= score <= 1 for score in scores.values())

    def test_other_documents_do_not_change_keyword_scores(self, engine: RecordEngine) -> None:
        for i in range(6):
            text = "ripe apple and pear" if i < 2 else "green pear alone here"
            engine.put_document(write(f"mine{i}", text, seed=i, scope=Scope(user="me"))).result()
        among = engine.match_passages(RecordFilter(scope=Scope(user="me")))
        before = engine.search_keywords("apple pear", among)
        for i in range(30):
            engine.put_document(write(f"yours{i}", "one apple each day", seed=10 + i, scope=Scope(user="you"))).result()
        after = engine.search_keywords("apple pear", among)
        assert sorted(before.passage_ids.tolist()) == sorted(after.passage_ids.tolist()) == among.tolist()
        assert dict(zip(after.passage_ids.tolist(), after.scores.tolist(), strict=True)) == pytest.approx(
            dict(zip(before.passage_ids.tolist(), before.scores.tolist(), strict=True)), rel=1e-6
        )

    def test_neighbouring_words_count_only_within_the_searched_passages(self, engine: RecordEngine) -> None:
        contents = [f"weather report {i}" for i in range(50)]
        contents[20:26] = [f"violin class {i}" for i in range(20, 26)]
        contents[26], contents[40] = "a lesson today", "a lesson tomorrow"
        for i, content in enumerate(contents):
            engine.put_document(write(f"d{i}", content, seed=i, scope=Scope(user="ab"[i % 2]))).result()
        scores = found_by_word(engine, "violin lesson")
        assert scores["d26"] > 1.2 * scores["d40"]
        own = engine.match_passages(RecordFilter(scope=Scope(user="a")))
        lonely = own[[13, 20]]
        alone = engine.search_keywords("violin lesson", lonely).scores
        assert alone[0] == pytest.approx(alone[1])

    def test_passages_are_located_and_deleted_ones_left_out(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", "one two", parts=2)).result()
        old = engine.match_passages(RecordFilter()).tolist()
        engine.put_document(write("d", "three four five", parts=3, seed=5)).result()
        new = engine.match_passages(RecordFilter()).tolist()
        assert not set(old) & set(new)
        places = engine.locate_passages([new[2], old[0], new[0]])
        assert [(place.passage_id, place.doc_id, place.index) for place in places] == [
            (new[2], "d", 2),
            (new[0], "d", 0),
        ]
        assert (places[1].start, places[1].end) == (0, 5)

    def test_removed_documents_are_counted_for_every_index(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "first")).result()
        engine.delete_document("a").result()
        assert engine.index_removals("early") == 0
        engine.set_index_position("early", IndexPosition(0, "g")).result()
        for content in ("first", "second", "second"):
            engine.put_document(write("a", content)).result()
        engine.put_document(write("b")).result()
        engine.set_index_position("late", IndexPosition(0, "g")).result()
        engine.delete_document("a").result()
        engine.delete_document("missing").result()
        assert (engine.index_removals("early"), engine.index_removals("late")) == (2, 1)
        engine.set_index_position("early", IndexPosition(7, "g2")).result()
        assert engine.index_removals("early") == 2
        engine.delete_documents(RecordFilter()).result()
        assert (engine.index_removals("early"), engine.index_removals("late")) == (3, 2)

    def test_deletions_are_kept_until_every_index_has_read_them(self, engine: RecordEngine) -> None:
        engine.set_index_position("slow", IndexPosition(0, "g")).result()
        engine.set_index_position("fast", IndexPosition(0, "g")).result()
        engine.put_document(write("a")).result()
        gone = engine.delete_document("a").result()
        engine.set_index_position("fast", IndexPosition(gone.sequence, "g")).result()
        assert [change.doc_id for change in engine.changes_after(0, limit=10)] == ["a"]
        engine.set_index_position("slow", IndexPosition(gone.sequence, "g2")).result()
        assert engine.changes_after(0, limit=10) == []
        assert engine.index_position("slow") == IndexPosition(gone.sequence, "g2")
        assert engine.index_position("unknown") == IndexPosition()
        assert engine.put_document(write("b", seed=1)).result().sequence > gone.sequence

    def test_stats_count_what_is_stored(self, engine: RecordEngine) -> None:
        engine.put_document(write("a", "x y z", parts=3)).result()
        engine.put_document(write("b", seed=9)).result()
        stats = engine.stats()
        assert (stats.document_count, stats.passage_count) == (2, 4)

    def test_a_listener_hears_of_a_commit_once_it_can_be_read(self, engine: RecordEngine) -> None:
        seen: list[int] = []
        end = engine.subscribe(lambda: seen.append(engine.count_documents(RecordFilter())))
        engine.put_document(write("a")).result()
        assert seen[-1] == 1
        end()
        engine.put_document(write("b", seed=1)).result()
        assert seen[-1] == 1

    def test_a_closed_vault_refuses_writes(self, vault: Vault, engine: RecordEngine) -> None:
        vault.close()
        vault.close()
        with pytest.raises(StorageFailedError):
            engine.put_document(write("a")).result()
