"""What the transactions of every vault must do: read and write in one transaction, as a whole or not at all."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS, RULES, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import InvalidOperationError, RequestIdReusedError, RevisionMismatchError
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.records import RequestKey, Scope, WriteOutcome
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.related import RelatedQuery
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, IndexPosition
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction

from tests.contract.vault_suite import START, ManualClock, VaultSuite, found_by_word, key, listed, unit_vector, write

FIELDS: dict[str, Any] = {
    "summary": "",
    "source": "",
    "importance": None,
    "keywords": (),
    "terms": (),
    "time": None,
    "content_hash": "",
    "superseded_by": "",
    "merged_from": (),
}


def statement(memory_id: str, content: str = "a text", **given: Any) -> DocumentWrite:
    """A document of the semantic collection. Arguments that name a field of the document set it."""
    fields = FIELDS | {name: given.pop(name) for name in FIELDS if name in given}
    return replace(write(memory_id, content, fields=fields, **given), change=ChangeType.SEMANTIC_SAVED)


def rule(name: str, content: str = "{}") -> DocumentWrite:
    return DocumentWrite(document=Document(name, content), passages=(), change=ChangeType.RULE_REGISTERED)


def change(doc_id: str, **changes: Any) -> DocumentUpdate:
    return DocumentUpdate(
        doc_id=doc_id, update=lambda old: replace(old, **changes), change=ChangeType.SEMANTIC_PRUNED, details='{"n": 1}'
    )


def run(vault: Vault, program: Callable[[VaultTransaction], Any], **terms: Any) -> TransactionReceipt:
    """Runs a program and ignores its result."""

    def answering(tx: VaultTransaction) -> str:
        program(tx)
        return "done"

    return vault.transact(answering, **terms).result()


def changes(vault: Vault, after: int = 0) -> tuple[Change, ...]:
    return vault.changes.read(after, limit=10_000, where=ChangeFilter()).changes


def near(vector_seed: int) -> RelatedQuery:
    return RelatedQuery(user="u", vector=unit_vector(vector_seed), similarity_above=0.999)


def state(vault: Vault) -> Any:
    """What a reader sees of a vault."""
    engine = vault.collection(SEMANTIC)
    return (
        engine.list_documents(RecordFilter(hidden=None), limit=100, vectors=True),
        vault.collection(RULES).list_documents(RecordFilter(hidden=None), limit=100),
        engine.stats(),
        sorted(engine.scan_vectors(unit_vector(0)).passage_ids.tolist()),
        found_by_word(engine, "zebra lion text"),
        [other.doc_id for other in engine.related_documents(RelatedQuery(user="u", number=9.0, number_apart=0.0))],
        changes(vault),
        vault.changes.state(),
        vault.value("v"),
    )


class VaultTransactionsContract(VaultSuite):
    """Every promise of `engines/promises/: VaultTransaction` and `RecordTransaction`, as a test."""

    collection = SEMANTIC

    def test_everything_a_program_did_is_one_commit_of_the_log(self, vault: Vault, clock: ManualClock) -> None:
        scope = Scope(user="u", agent="a")
        vault.collection(DOCUMENTS).put_document(write("before")).result()
        clock.now += timedelta(hours=1)

        def program(tx: VaultTransaction) -> str:
            assert tx.now == clock.now
            tx.collection(SEMANTIC).put_document(replace(statement("s", scope=scope), details='{"d": 1}'))
            tx.collection(RULES).put_document(rule("r"))
            tx.note_change(ChangeType.CONFLICT_DETECTED, "c", revision=7, scope=scope, details="{}")
            tx.collection(SEMANTIC).update_document(change("s", metadata={"n": 1}))
            tx.collection(RULES).delete_document("r", change=ChangeType.RULE_DELETED, details='{"gone": true}')
            return "the answer"

        receipt = vault.transact(program, request=key("q")).result()

        [_, *noted] = changes(vault)
        assert receipt == TransactionReceipt("the answer", clock.now, noted[-1].sequence)
        assert {(change.commit, change.time, change.request_id) for change in noted} == {
            (noted[0].sequence, clock.now, "q")
        }
        assert [(e.type, e.record_id, e.revision, e.scope, e.changed, e.details) for e in noted] == [
            (ChangeType.SEMANTIC_SAVED, "s", 1, scope, (), '{"d": 1}'),
            (ChangeType.RULE_REGISTERED, "r", 1, Scope(), (), ""),
            (ChangeType.CONFLICT_DETECTED, "c", 7, scope, (), "{}"),
            (ChangeType.SEMANTIC_PRUNED, "s", 2, scope, ("metadata.n",), '{"n": 1}'),
            (ChangeType.RULE_DELETED, "r", 1, Scope(), (), '{"gone": true}'),
        ]
        [stored] = vault.collection(SEMANTIC).get_documents(["s"])
        assert stored is not None
        assert (stored.create_time, stored.update_time, stored.revision) == (clock.now, clock.now, 2)

    def test_single_writes_have_details_too(self, vault: Vault, engine: RecordEngine) -> None:
        engine.put_document(replace(statement("s"), details="first")).result()
        engine.update_document(change("s", hidden=True)).result()
        assert [change.details for change in changes(vault)] == ["first", '{"n": 1}']

    def test_a_program_that_raises_leaves_nothing_behind(self, vault: Vault, engine: RecordEngine) -> None:
        scope = Scope(user="u")
        engine.put_document(statement("old", "zebra", scope=scope, importance=1.0, terms=("a",))).result()
        engine.put_document(statement("other", "lion", seed=1, scope=scope, importance=2.0)).result()
        run(vault, lambda tx: tx.set_value("v", "before"))
        before = state(vault)

        def program(tx: VaultTransaction) -> str:
            records = tx.collection(SEMANTIC)
            records.put_document(statement("new", "zebra lion", seed=5, scope=scope, importance=3.0))
            records.update_document(change("old", hidden=True))
            records.delete_document("other", change=ChangeType.SEMANTIC_PRUNED)
            records.delete_documents(RecordFilter(), change=ChangeType.SEMANTIC_PRUNED)
            tx.collection(RULES).put_document(rule("r"))
            tx.note_change(ChangeType.RULE_UPDATED, "r")
            tx.set_value("v", "after")
            tx.set_value("w", "after")
            raise InvalidOperationError("no")

        with pytest.raises(InvalidOperationError, match="no"):
            vault.transact(program, request=key("q")).result()

        assert state(vault) == before
        assert vault.value("w") is None
        last = changes(vault)[-1].sequence
        assert not run(vault, lambda tx: tx.collection(RULES).put_document(rule("r")), request=key("q")).replayed
        assert [change.record_id for change in changes(vault, last)] == ["r"]

    def test_a_program_sees_what_was_stored_and_what_it_wrote(self, vault: Vault, engine: RecordEngine) -> None:
        scope = Scope(user="u")
        for i in range(3):
            engine.put_document(statement(f"s{i}", seed=i, scope=scope, importance=float(i))).result()
        seen: list[Any] = []

        def ids(tx: VaultTransaction, where: RecordFilter | None = None) -> list[str]:
            found = tx.collection(SEMANTIC).list_documents(where or RecordFilter(), limit=10)
            return [document.doc_id for _, document in found]

        def program(tx: VaultTransaction) -> str:
            records = tx.collection(SEMANTIC)
            seen.append(ids(tx))
            records.put_document(statement("new", seed=9, scope=scope, importance=5.0))
            records.update_document(change("s0", hidden=True, metadata={"n": 1}))
            records.delete_document("s1", change=ChangeType.SEMANTIC_PRUNED)
            seen.append(ids(tx))
            seen.append(ids(tx, RecordFilter({"n": 1}, hidden=True)))
            seen.append(ids(tx, RecordFilter(expression=Condition("importance", Operator.GT, (1,)))))
            seen.append(records.count_documents(RecordFilter(hidden=None)))
            seen.append([document and document.revision for document in records.get_documents(["s0", "s1", "new"])])
            [stored] = records.get_documents(["new"], vectors=True)
            assert stored is not None
            np.testing.assert_allclose(stored.embedding, unit_vector(9), atol=1e-7)
            return ""

        vault.transact(program).result()
        assert seen == [["s0", "s1", "s2"], ["s2", "new"], ["s0"], ["s2", "new"], 3, [2, None, 1]]
        assert listed(engine) == ["s2", "new"]

    def test_a_list_in_a_transaction_can_leave_out_the_texts(self, vault: Vault) -> None:
        seen = []

        def program(tx: VaultTransaction) -> None:
            documents = tx.collection(DOCUMENTS)
            documents.put_document(write("d", "zebra", metadata={"n": 1}))
            [(_, document)] = documents.list_documents(RecordFilter(), limit=2, fields_only=True)
            seen.append((document.doc_id, document.content, document.metadata, document.passages))

        run(vault, program)
        assert seen == [("d", "", {}, ())]

    def test_related_documents_in_a_transaction_include_its_own_writes(
        self, vault: Vault, engine: RecordEngine
    ) -> None:
        scope = Scope(user="u")
        engine.put_document(statement("a", seed=1, scope=scope)).result()
        engine.put_document(statement("b", seed=2, scope=scope)).result()
        seen: list[list[str]] = []

        def program(tx: VaultTransaction) -> str:
            records = tx.collection(SEMANTIC)

            def look(*seeds: int) -> None:
                seen.append([other.doc_id for seed in seeds for other in records.related_documents(near(seed))])

            records.put_document(statement("c", seed=3, scope=scope))
            look(1, 2, 3)
            records.update_document(change("a", hidden=True))
            records.delete_document("b", change=ChangeType.SEMANTIC_PRUNED)
            look(1, 2, 3)
            records.update_document(change("a", hidden=False))
            records.delete_document("c", change=ChangeType.SEMANTIC_PRUNED)
            look(1, 2, 3)
            return ""

        vault.transact(program).result()
        assert seen == [["a", "b", "c"], ["c"], ["a"]]
        assert [len(engine.related_documents(near(seed))) for seed in (1, 2, 3)] == [1, 0, 0]

    def test_a_document_added_and_deleted_in_one_transaction_is_in_no_search(
        self, vault: Vault, engine: RecordEngine
    ) -> None:
        def program(tx: VaultTransaction) -> None:
            records = tx.collection(SEMANTIC)
            records.put_document(statement("gone", "zebra", seed=1))
            records.delete_document("gone", change=ChangeType.SEMANTIC_PRUNED)
            records.put_document(statement("back", "lion", seed=2))
            records.update_document(change("back", hidden=True))
            records.update_document(change("back", hidden=False))

        run(vault, program)
        assert found_by_word(engine, "zebra lion").keys() == {"back"}
        assert engine.scan_vectors(unit_vector(2)).scores.tolist() == pytest.approx([1.0], abs=1e-6)
        assert (engine.stats().document_count, engine.stats().passage_count) == (1, 1)
        assert [change.revision for change in changes(vault)] == [1, 1, 1, 2, 3]

    def test_words_added_and_deleted_in_one_transaction_find_nothing(self, vault: Vault) -> None:
        def program(tx: VaultTransaction) -> None:
            documents = tx.collection(DOCUMENTS)
            documents.put_document(write("gone", "zebra"))
            documents.delete_document("gone", change=ChangeType.KNOWLEDGE_DELETED)
            documents.put_document(write("back", "lion"))

        run(vault, program)
        assert found_by_word(vault.collection(DOCUMENTS), "zebra lion").keys() == {"back"}

    def test_receipts_in_a_transaction_report_the_result_of_each_write(
        self, vault: Vault, engine: RecordEngine
    ) -> None:
        first = engine.put_document(statement("a")).result()
        receipts = []

        def program(tx: VaultTransaction) -> None:
            records = tx.collection(SEMANTIC)
            receipts.extend(
                [
                    records.put_document(statement("a")),
                    records.put_document(statement("b", seed=1)),
                    records.put_document(statement("b", "other", seed=1)),
                    records.update_document(change("none")),
                    records.delete_document("b", change=ChangeType.SEMANTIC_PRUNED),
                ]
            )
            gone = records.delete_documents(RecordFilter(), change=ChangeType.SEMANTIC_PRUNED)
            assert (gone.deleted_count, gone.sequence) == (1, receipts[-1].sequence + 1)

        run(vault, program)
        assert [(receipt.outcome, receipt.revision) for receipt in receipts] == [
            (WriteOutcome.UNCHANGED, 1),
            (WriteOutcome.CREATED, 1),
            (WriteOutcome.REPLACED, 2),
            (WriteOutcome.MISSING, 0),
            (WriteOutcome.DELETED, 2),
        ]
        assert receipts[0].sequence == first.sequence
        assert receipts[3].sequence == receipts[2].sequence
        assert {receipt.commit_time for receipt in receipts} == {START}

    def test_a_stale_revision_in_a_transaction_is_refused_and_the_program_may_go_on(self, vault: Vault) -> None:
        def program(tx: VaultTransaction) -> None:
            records = tx.collection(SEMANTIC)
            records.put_document(statement("a"))
            with pytest.raises(RevisionMismatchError):
                records.put_document(statement("a", "other", expected_revision=7))
            records.put_document(statement("a", "another", expected_revision=1))

        run(vault, program)
        [stored] = vault.collection(SEMANTIC).get_documents(["a"])
        assert stored is not None
        assert (stored.content, stored.revision) == ("another", 2)

    def test_a_request_is_answered_once_and_its_program_runs_once(self, vault: Vault, clock: ManualClock) -> None:
        runs: list[int] = []

        def program(tx: VaultTransaction) -> str:
            runs.append(1)
            tx.set_value("v", str(len(runs)))
            return f"run {len(runs)}"

        assert not vault.is_answered("q")
        first = vault.transact(program, request=key("q")).result()
        assert vault.is_answered("q")
        clock.now += timedelta(hours=1)
        assert vault.transact(program, request=key("q")).result() == replace(first, replayed=True)
        with pytest.raises(RequestIdReusedError):
            vault.transact(program, request=key("q", b"another")).result()
        with pytest.raises(RequestIdReusedError):
            vault.collection(SEMANTIC).put_document(statement("a", request=key("q", b"a put"))).result()
        assert (first.answer, runs, vault.value("v")) == ("run 1", [1], "1")
        clock.now += timedelta(hours=24)
        assert not vault.is_answered("q")
        assert vault.transact(program, request=key("q")).result().answer == "run 2"

    @pytest.mark.parametrize("request_key", [key("inner")])
    def test_a_write_in_a_transaction_has_no_request_of_its_own(self, vault: Vault, request_key: RequestKey) -> None:
        def put(tx: VaultTransaction) -> None:
            tx.collection(SEMANTIC).put_document(statement("a", request=request_key))

        def update(tx: VaultTransaction) -> None:
            tx.collection(SEMANTIC).update_document(replace(change("a"), request=request_key))

        for program in (put, update):
            with pytest.raises(ValueError, match="must not have a request of their own"):
                run(vault, program)

    def test_values_are_kept_and_replaced(self, vault: Vault) -> None:
        seen: list[str | None] = []

        def program(tx: VaultTransaction) -> None:
            seen.append(tx.value("v"))
            tx.set_value("v", "one\n\u00e9'\"")
            seen.append(tx.value("v"))

        assert vault.value("v") is None
        run(vault, program)
        run(vault, lambda tx: tx.set_value("w", ""))
        assert seen == [None, "one\n\u00e9'\""]
        assert (vault.value("v"), vault.value("w")) == ("one\n\u00e9'\"", "")
        run(vault, lambda tx: tx.set_value("v", "two"))
        assert vault.value("v") == "two"
        run(vault, lambda tx: tx.remove_value("v"))
        run(vault, lambda tx: tx.remove_value("never stored"))
        assert (vault.value("v"), vault.values("")) == (None, {"w": ""})
        assert changes(vault) == ()

    def test_a_transaction_that_changes_nothing_names_the_last_change(self, vault: Vault) -> None:
        assert run(vault, lambda tx: None).sequence == 0
        run(vault, lambda tx: tx.note_change(ChangeType.RULE_UPDATED, "r"))
        last = changes(vault)[-1].sequence
        assert run(vault, lambda tx: tx.collection(SEMANTIC).get_documents(["a"])).sequence == last
        assert len(changes(vault)) == 1

    def test_a_silent_deletion_reaches_indexes_too(self, vault: Vault, engine: RecordEngine) -> None:
        engine.set_index_position("i", IndexPosition(0, "g")).result()
        for i in range(3):
            engine.put_document(statement(f"s{i}", seed=i, scope=Scope(user="u" if i else ""))).result()

        def program(tx: VaultTransaction) -> None:
            tx.collection(SEMANTIC).delete_document("s0", change=None)
            tx.collection(SEMANTIC).delete_documents(RecordFilter(scope=Scope(user="u")), change=None)

        head = changes(vault)[-1].sequence
        receipt = run(vault, program)
        assert changes(vault, head) == ()
        assert [(one.doc_id, one.document) for one in engine.changes_after(head, limit=9)] == [
            ("s0", None),
            ("s1", None),
            ("s2", None),
        ]
        assert receipt.sequence == engine.stats().sequence == engine.changes_after(head, limit=9)[-1].sequence
        later = engine.put_document(statement("later")).result()
        assert later.sequence > receipt.sequence
        assert [change.record_id for change in changes(vault, head)] == ["later"]

    def test_documents_without_passages_are_kept_and_found_by_their_fields(self, vault: Vault) -> None:
        rules = vault.collection(RULES)
        rules.put_document(rule("r", '{"n": 1}')).result()
        rules.put_document(rule("r", '{"n": 2}')).result()
        rules.put_document(rule("s")).result()
        rules.update_document(change("s", hidden=True)).result()
        assert [(d.doc_id, d.content, d.passages) for _, d in rules.list_documents(RecordFilter(), limit=9)] == [
            ("r", '{"n": 2}', ())
        ]
        [stored] = rules.get_documents(["r"], vectors=True)
        assert stored is not None
        assert (stored.embedding, stored.revision) == (None, 2)
        assert [(one.doc_id, one.passage_ids) for one in rules.changes_after(0, limit=9)] == [("r", ()), ("s", ())]
        assert rules.scan_vectors(unit_vector(0)).passage_ids.size == 0
        assert (rules.stats().document_count, rules.stats().passage_count) == (2, 0)

    def test_programs_of_many_threads_run_one_after_another(self, vault: Vault) -> None:
        def count_up(tx: VaultTransaction) -> str:
            count = int(tx.value("count") or "0") + 1
            tx.set_value("count", str(count))
            tx.collection(SEMANTIC).put_document(statement(f"s{count}", seed=count))
            if count % 5 == 0:
                tx.set_value("fives", str(int(tx.value("fives") or "0") + 1))
                if int(tx.value("fives") or "0") % 2:
                    return "kept"
            return str(count)

        def refuse(tx: VaultTransaction) -> str:
            count_up(tx)
            raise InvalidOperationError("no")

        def work(worker: int) -> list[str]:
            answers = []
            for i in range(15):
                if (worker + i) % 4 == 0:
                    with pytest.raises(InvalidOperationError):
                        vault.transact(refuse).result()
                else:
                    answers.append(vault.transact(count_up).result().answer)
            return answers

        with ThreadPoolExecutor(8) as pool:
            answers = [answer for found in pool.map(work, range(8)) for answer in found]

        engine = vault.collection(SEMANTIC)
        assert vault.value("count") == str(len(answers))
        assert vault.value("fives") == str(len(answers) // 5)
        assert listed(engine) == [f"s{i + 1}" for i in range(len(answers))]
        assert [change.record_id for change in changes(vault)] == listed(engine)
        assert len(engine.scan_vectors(unit_vector(0)).passage_ids) == len(answers)


class DurableVaultTransactionsContract(VaultTransactionsContract):
    """Adds the promises of a vault on disk."""

    def test_everything_a_transaction_wrote_is_there_after_reopening(self, tmp_path: Path, clock: ManualClock) -> None:
        vault = self.open_vault(tmp_path / "kept", clock)

        def program(tx: VaultTransaction) -> None:
            tx.collection(SEMANTIC).put_document(
                statement(
                    "s",
                    scope=Scope(user="u"),
                    importance=0.25,
                    keywords=("b", "a", "b"),
                    terms=("a", "b"),
                    time=START,
                    merged_from=("x", "\u00e9'\""),
                )
            )
            tx.set_value("v", "kept")
            tx.note_change(ChangeType.RULE_UPDATED, "r", details="{}")

        receipt = run(vault, program, request=key("q"))
        query = RelatedQuery(user="u", terms=frozenset("a"), overlap_above=0.5)
        before = state(vault), list(vault.collection(SEMANTIC).related_documents(query))
        vault.close()

        vault = self.open_vault(tmp_path / "kept", clock)
        assert (state(vault), list(vault.collection(SEMANTIC).related_documents(query))) == before
        assert run(vault, program, request=key("q")) == replace(receipt, replayed=True)
        [change] = changes(vault, receipt.sequence - 1)
        assert (change.record_id, change.details) == ("r", "{}")
        # The last change concerned no document, and its position is not assigned again.
        assert vault.collection(RULES).put_document(rule("r")).result().sequence == receipt.sequence + 1
        vault.close()
