"""What every vault must do for facts: silent changes, distinct texts of a field, and documents that end."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import Condition, Expression, NoneOf, Operator, RecordFilter
from mnemon_server.domain.namespaces import Namespace, encode_namespace, starts_with
from mnemon_server.domain.records import WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite
from mnemon_server.engines.promises.vault import Vault

from tests.contract.vault_suite import START, ManualClock, VaultSuite, found_by_word, listed, write
from tests.support.colliding_namespaces import COLLIDING

FIELDS: dict[str, Any] = {
    "namespace": "org.",
    "fact_key": "",
    "fact_value": "",
    "own_metadata": "",
    "indexing": "",
    "created_at": None,
    "updated_at": None,
    "ttl_s": None,
    "expire_time": None,
    "versions": "",
}


def fact(doc_id: str, content: str = "a text", **fields: Any) -> DocumentWrite:
    return replace(write(doc_id, content, fields=FIELDS | fields), change=ChangeType.FACT_CREATED)


def later(time: datetime) -> Callable[[Document], Document]:
    return lambda stored: replace(stored, fields={**stored.fields, "expire_time": time})


def quietly(engine: RecordEngine, doc_id: str, change: Callable[[Document], Document], **terms: Any) -> WriteReceipt:
    return engine.update_document(DocumentUpdate(doc_id=doc_id, update=change, change=None, **terms)).result()


def changes_told(vault: Vault) -> list[tuple[str, int, tuple[str, ...]]]:
    return [
        (change.record_id, change.revision, change.changed)
        for change in vault.changes.read(0, limit=100, where=ChangeFilter()).changes
    ]


class FactRecordsContract(VaultSuite):
    """The promises of `RecordEngine` that facts rely on."""

    collection = FACTS

    def test_texts_that_are_not_asked_for_are_neither_read_nor_counted(self, vault: Vault) -> None:
        engine, sizes = vault.collection(FACTS), list[int]()
        engine.put_document(fact("d", fact_key="k", fact_value="x" * 9_000, ttl_s=5.0)).result()
        names = frozenset({"namespace", "fact_key"})
        [document] = engine.get_documents(["d"], fields_only=names, fits=lambda _, size: not sizes.append(size))
        [(_, listed)] = engine.list_documents(
            RecordFilter(), limit=1, fields_only=names, fits=lambda _, size: not sizes.append(size)
        )
        assert document == listed and document is not None
        assert document.fields == FIELDS | {"fact_key": "k", "fact_value": "", "ttl_s": 5.0}
        assert sizes[0] == sizes[1] < 100

    def test_a_silent_change_is_stored_but_not_in_the_log(
        self, vault: Vault, engine: RecordEngine, clock: ManualClock
    ) -> None:
        first = engine.put_document(fact("a", "zebra", expire_time=START)).result()
        clock.now += timedelta(hours=1)
        receipt = quietly(engine, "a", later(clock.now))
        [stored] = engine.get_documents(["a"])
        assert stored is not None
        assert stored.fields["expire_time"] == clock.now
        assert (stored.revision, stored.create_time, stored.update_time) == (1, START, START)
        assert (receipt.outcome, receipt.revision) == (WriteOutcome.REPLACED, 1)
        assert changes_told(vault) == [("a", 1, ())]
        assert found_by_word(engine, "zebra").keys() == {"a"}
        # Indexes receive the change, and later changes come after it.
        assert receipt.sequence > first.sequence
        assert engine.stats().sequence == receipt.sequence
        assert [one.sequence for one in engine.changes_after(0, limit=9)] == [receipt.sequence]
        assert engine.put_document(fact("b")).result().sequence > receipt.sequence

    def test_a_silent_change_keeps_the_revision_and_later_writes_count_on(
        self, vault: Vault, engine: RecordEngine, clock: ManualClock
    ) -> None:
        engine.put_document(fact("a")).result()
        clock.now += timedelta(hours=1)
        quietly(engine, "a", later(clock.now), expected_revision=1)
        assert quietly(engine, "a", later(clock.now)).outcome is WriteOutcome.UNCHANGED
        assert quietly(engine, "missing", later(clock.now)).outcome is WriteOutcome.MISSING
        write = replace(fact("a", "other"), change=ChangeType.FACT_UPDATED, expected_revision=1)
        assert engine.put_document(write).result().revision == 2
        [stored] = engine.get_documents(["a"])
        assert stored is not None
        assert (stored.revision, stored.update_time) == (2, clock.now)
        assert changes_told(vault) == [("a", 1, ()), ("a", 2, ("content", "expire_time"))]

    def test_a_change_names_the_fields_that_the_write_names(self, vault: Vault, engine: RecordEngine) -> None:
        engine.put_document(replace(fact("a"), changed=("value",))).result()
        engine.put_document(replace(fact("a", "other", fact_key="k"), changed=("value",))).result()
        engine.put_document(replace(fact("a", "third"), changed=())).result()
        assert changes_told(vault) == [("a", 1, ()), ("a", 2, ("value",)), ("a", 3, ())]

    def test_distinct_texts_of_a_field_come_once_ordered_by_code_point(self, engine: RecordEngine) -> None:
        texts = ["b.", "a.", "\U0001f600.", "a.x.", "\uffee.", "a-b.", "B.", "z.", ""]
        for number, text in enumerate([*texts, *texts]):
            engine.put_document(fact(f"d{number}", namespace=text)).result()
        engine.put_document(replace(fact("gone", namespace="g."))).result()
        engine.delete_document("gone").result()
        engine.put_document(fact("hidden", namespace="h.")).result()
        engine.update_document(
            DocumentUpdate(
                doc_id="hidden", update=lambda old: replace(old, hidden=True), change=ChangeType.FACT_UPDATED
            )
        ).result()
        ordered = ["B.", "a-b.", "a.", "a.x.", "b.", "z.", "\uffee.", "\U0001f600."]
        assert engine.distinct_texts("namespace", limit=100) == ordered
        assert engine.distinct_texts("namespace", limit=3) == ordered[:3]
        assert engine.distinct_texts("namespace", after="a.", limit=2) == ["a.x.", "b."]
        assert engine.distinct_texts("namespace", after="a", limit=1) == ["a-b."]
        assert engine.distinct_texts("namespace", after="\U0001f600.", limit=3) == []
        assert engine.distinct_texts("namespace", within=("a.", "b."), limit=9) == ["a.", "a.x."]
        assert engine.distinct_texts("namespace", within=("a", "z."), after="a.", limit=9) == ["a.x.", "b."]
        assert engine.distinct_texts("namespace", within=("z.", "b."), limit=9) == []

    def test_a_list_can_begin_at_an_offset(self, engine: RecordEngine) -> None:
        for number in range(7):
            engine.put_document(fact(f"d{number}", namespace="even." if number % 2 == 0 else "odd.")).result()
        even = RecordFilter(expression=Condition("namespace", Operator.EQ, ("even.",)))

        def ids(**terms: Any) -> list[str]:
            return [document.doc_id for _, document in engine.list_documents(limit=2, **terms)]

        assert ids(where=even, skip=1) == ["d2", "d4"]
        assert ids(where=even, skip=3) == ["d6"]
        assert ids(where=even, skip=4) == []
        assert ids(where=RecordFilter(), skip=2, descending=True) == ["d4", "d3"]

    @pytest.mark.parametrize("filler", [0, 30])
    def test_ended_documents_are_told_from_current_ones_and_from_those_without_an_end(
        self, engine: RecordEngine, filler: int
    ) -> None:
        for number in range(filler):
            engine.put_document(fact(f"filler {number}", namespace="other.")).result()
        for name, end in (("past", -1), ("now", 0), ("later", 1), ("never", None)):
            time = None if end is None else START + timedelta(microseconds=end)
            engine.put_document(fact(name, expire_time=time)).result()

        def found(expression: Expression) -> list[str]:
            where = RecordFilter(expression=expression)
            ids = listed(engine, where)
            assert engine.count_documents(where) == len(ids)
            assert len(engine.match_passages(where)) == len(ids)
            return [doc_id for doc_id in ids if not doc_id.startswith("filler")]

        ended = Condition("expire_time", Operator.LTE, (START,))
        assert found(ended) == ["past", "now"]
        assert found(Condition("expire_time", Operator.LT, (START,))) == ["past"]
        assert found(NoneOf((ended,))) == ["later", "never"]
        assert found(Condition("expire_time", Operator.LTE, ("a text",))) == []

    def test_a_namespace_filter_finds_the_namespace_and_those_below_it_only(self, engine: RecordEngine) -> None:
        for number, labels in enumerate(COLLIDING):
            engine.put_document(fact(str(number), namespace=encode_namespace(Namespace(labels)))).result()
        for labels in COLLIDING:
            namespace = Namespace(labels)
            below = [str(number) for number, other in enumerate(COLLIDING) if other[: len(labels)] == labels]
            within = RecordFilter(expression=starts_with(namespace, "namespace"))
            assert listed(engine, within) == below
            assert engine.count_documents(within) == len(below)
