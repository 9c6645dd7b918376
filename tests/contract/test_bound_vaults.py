"""What a caller with bounds is told does not depend on the records outside of them, whatever others do."""

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS, FACTS, RULES, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import IdTakenError, PermissionDeniedError, RevisionMismatchError, StorageFailedError
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.namespaces import Namespace, encode_namespace
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.bound import records as bound_records
from mnemon_server.engines.bound.writing import write_own
from mnemon_server.engines.promises.records import RecordEngine, RecordTransaction
from mnemon_server.engines.promises.related import RelatedQuery
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, PassageInput
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.semantic.stored_form import to_document

from tests.contract.sqlite_vaults import open_quantized, open_sqlite
from tests.contract.vault_suite import DIMENSION, START, ManualClock, key, unit_vector, write
from tests.support.interference import histories
from tests.support.vaults import temporary_vault

ADA, BOB = (Bounds.of([user], [f"users.{user}"]) for user in ("ada", "bob"))
WORDS = ("window", "train", "seat", "early")

ids = st.sampled_from(["one", "two", "three", "four"])
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
puts = st.tuples(st.just("put"), ids, texts, st.integers(0, 9))
others = st.one_of(
    st.tuples(st.just("put"), ids, texts, st.integers(0, 9)),
    st.tuples(st.just("update"), ids, texts, st.integers(0, 9)),
    st.tuples(st.just("delete"), ids, texts, st.integers(0, 9)),
    st.tuples(st.just("delete all"), ids, texts, st.integers(0, 9)),
)
steps = st.lists(st.one_of(puts.map(lambda step: ("ada", *step)), others.map(lambda step: ("bob", *step))), max_size=14)


@pytest.mark.parametrize(("open_vault", "examples"), [(open_sqlite, 25), (open_quantized, 10)])
def test_what_others_write_changes_nothing_that_a_caller_is_told(
    open_vault: Callable[[Path, ManualClock], Vault], examples: int
) -> None:
    @histories(examples)
    @given(steps)
    def check(steps: list[tuple[str, str, str, str, int]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            clock = ManualClock()
            alone, shared = open_vault(Path(folder) / "alone", clock), open_vault(Path(folder) / "shared", clock)
            try:
                for user, *step in steps:
                    # Ids of different users must differ, or the first one has them.
                    if user == "ada":
                        answers = [run(BoundVault(vault, ADA).collection(DOCUMENTS), step) for vault in (alone, shared)]
                        assert answers[0] == answers[1]
                    else:
                        # He also tries the ids of hers.
                        for prefix in ("bobs ", ""):
                            attack(BoundVault(shared, BOB).collection(DOCUMENTS), step, prefix)
                assert told(alone) == told(shared)
            finally:
                alone.close()
                shared.close()

    check()


def run(records: RecordEngine, step: list[Any]) -> Any:
    _, doc_id, text, seed = step
    receipt = records.put_document(write(doc_id, text, seed=seed, request=key(f"{doc_id}{seed}{text}"))).result()
    return receipt.outcome, receipt.revision, receipt.replayed


def attack(records: RecordEngine, step: list[Any], prefix: str) -> None:
    """What another user does: with records of their own, or with ids of hers, which then must not exist for them."""
    what, doc_id, text, seed = step
    is_own, doc_id = bool(prefix), prefix + doc_id
    if what == "put":
        if is_own:
            records.put_document(write(doc_id, text, seed=seed, request=key("the same"))).exception()
    elif what == "update":
        change = DocumentUpdate(
            doc_id=doc_id, update=lambda stored: stored, change=None, expected_revision=seed or None
        )
        receipt = records.update_document(change)
        assert is_own or receipt.result().outcome is WriteOutcome.MISSING
    elif what == "delete":
        receipt = records.delete_document(doc_id, expected_revision=None if is_own else seed)
        assert is_own or receipt.result().outcome is WriteOutcome.MISSING
    else:
        where = RecordFilter(expression=Condition("id", Operator.NE, ("",)))
        records.delete_documents(where if not is_own else RecordFilter({"none": 1})).result()


def told(vault: Vault) -> list[Any]:
    """Everything that the engine tells the first user."""
    records = BoundVault(vault, ADA).collection(DOCUMENTS)
    where = RecordFilter(expression=Condition("content", Operator.NE, ("",)))
    listed = [document for _, document in records.list_documents(RecordFilter(), limit=100)]
    found = [records.search_keywords(word) for word in (*WORDS, " ".join(WORDS))]
    near = records.scan_vectors(unit_vector(3), exact=100)
    return [
        listed,
        records.get_documents(["one", "two", "bobs one", "missing"]),
        records.count_documents(RecordFilter(hidden=None)),
        records.count_documents(where),
        (records.stats().document_count, records.stats().passage_count),
        [located(records, scores) for scores in (*found, near)],
        located(records, records.scan_vectors(unit_vector(5), records.match_passages(RecordFilter()), exact=100)),
        records.nearest_vectors(unit_vector(3), limit=3),
        records.has_metadata_key("any"),
        changes_of_hers(vault),
    ]


def changes_of_hers(vault: Vault) -> list[Any]:
    """What the change log tells her, but for positions, which have gaps."""
    found = vault.changes.read(0, limit=100, where=ChangeFilter(bounds=ADA)).changes
    assert {change.scope.user for change in found} <= {"ada"}
    return [change._replace(sequence=0, commit=0) for change in found]


def located(records: RecordEngine, scores: Any) -> dict[str, float]:
    places = records.locate_passages(scores.passage_ids.tolist())
    assert len(places) == len(scores.passage_ids)
    return {place.doc_id: round(float(score), 6) for place, score in zip(places, scores.scores, strict=True)}


@pytest.fixture
def vault() -> Iterator[Vault]:
    with temporary_vault(ManualClock(), dimension=DIMENSION) as opened:
        yield opened


def of(vault: Vault, bounds: Bounds) -> RecordEngine:
    return BoundVault(vault, bounds).collection(DOCUMENTS)


def test_a_record_of_another_user_counts_as_missing_inside_the_transaction_too(vault: Vault) -> None:
    of(vault, ADA).put_document(write("hers", "window")).result()

    def program(tx: VaultTransaction) -> str:
        records = tx.collection(DOCUMENTS)
        assert records.get_documents(["hers"]) == [None]
        assert records.list_documents(RecordFilter(), limit=9) == []
        assert records.count_documents(RecordFilter()) == 0
        assert records.delete_document("hers", change=None).outcome is WriteOutcome.MISSING
        assert records.delete_documents(RecordFilter(), change=None).deleted_count == 0
        update = DocumentUpdate(doc_id="hers", update=lambda stored: stored, change=None)
        assert records.update_document(update).outcome is WriteOutcome.MISSING
        with pytest.raises(IdTakenError):
            records.put_document(write("hers", "bob was here"))
        return "done"

    assert BoundVault(vault, BOB).transact(program).result().answer == "done"
    [kept] = of(vault, ADA).get_documents(["hers"])
    assert kept is not None
    assert kept.content == "window"


def test_a_transaction_sees_the_callers_own_records(vault: Vault) -> None:
    of(vault, ADA).put_document(write("hers", "window")).result()

    def program(tx: VaultTransaction) -> str:
        records = tx.collection(DOCUMENTS)
        assert [each.content for each in records.get_documents(["hers"]) if each] == ["window"]
        assert [each.doc_id for _, each in records.list_documents(RecordFilter(), limit=9)] == ["hers"]
        assert records.count_documents(RecordFilter()) == 1
        return "done"

    assert BoundVault(vault, ADA).transact(program).result().answer == "done"


@pytest.mark.parametrize("where", ["alone", "in a transaction"])
def test_a_deletion_spares_what_its_caller_does_not_see_for_reasons_of_its_own(vault: Vault, where: str) -> None:
    for bounds, doc_id in ((ADA, "hers"), (BOB, "his")):
        of(vault, bounds).put_document(write(doc_id, "window")).result()

    def delete(doc_id: str, *, visible: bool) -> WriteOutcome:
        def seen(document: Document) -> bool:
            return visible

        def program(tx: VaultTransaction) -> str:
            return tx.collection(DOCUMENTS).delete_document(doc_id, change=None, visible=seen).outcome.value

        if where == "in a transaction":
            return WriteOutcome(BoundVault(vault, ADA).transact(program).result().answer)
        return of(vault, ADA).delete_document(doc_id, visible=seen).result().outcome

    assert delete("his", visible=True) is WriteOutcome.MISSING
    assert delete("hers", visible=False) is WriteOutcome.MISSING
    assert delete("hers", visible=True) is WriteOutcome.DELETED


def test_an_id_that_is_taken_tells_no_revision(vault: Vault) -> None:
    of(vault, ADA).put_document(write("hers", "window")).result()
    of(vault, ADA).put_document(write("hers", "train")).result()
    with pytest.raises(IdTakenError):
        of(vault, BOB).put_document(write("hers", "bob", expected_revision=0)).result()
    for engine, doc_id in ((of(vault, BOB), "hers"), (of(vault, BOB), "missing")):
        with pytest.raises(RevisionMismatchError) as caught:
            engine.put_document(write(doc_id, "bob", expected_revision=2)).result()
        assert caught.value.actual == 0


def test_a_record_cannot_be_moved_out_of_the_bounds(vault: Vault) -> None:
    records = of(vault, ADA)
    records.put_document(write("hers", "window")).result()
    moved = DocumentUpdate(
        doc_id="hers",
        update=lambda stored: Document("hers", stored.content, scope=Scope(user="bob")),
        change=None,
    )
    with pytest.raises(PermissionDeniedError):
        records.update_document(moved).result()
    assert records.count_documents(RecordFilter()) == 1


@pytest.mark.parametrize("kind", ["put", "update", "delete", "delete all", "transact"])
def test_the_same_request_id_of_two_users_is_that_of_two_requests(vault: Vault, kind: str) -> None:
    replayed = []
    for bounds, doc_id in ((ADA, "hers"), (BOB, "his")):
        of(vault, bounds).put_document(write(doc_id, "window")).result()
        replayed += [ask(BoundVault(vault, bounds), doc_id, kind).result().replayed for _ in range(2)]
    assert replayed == [False, True, False, True]


def ask(vault: BoundVault, doc_id: str, kind: str) -> Any:
    records, request = vault.collection(DOCUMENTS), key("the same")
    match kind:
        case "put":
            return records.put_document(write(doc_id, "train", request=request))
        case "update":
            update = DocumentUpdate(doc_id=doc_id, update=lambda stored: stored, change=None, request=request)
            return records.update_document(update)
        case "delete":
            return records.delete_document(doc_id, request=request)
        case "delete all":
            return records.delete_documents(RecordFilter(), request=request)
        case _:
            return vault.transact(lambda tx: "done", request=request)


def test_several_writes_are_refused_one_by_one(vault: Vault) -> None:
    writes = [write("a", scope=Scope(user="ada")), write("b", scope=Scope(user="bob")), write("c")]
    first, refused, last = of(vault, ADA).put_documents(writes).result()
    assert isinstance(refused, PermissionDeniedError)
    assert [getattr(each, "outcome", None) for each in (first, last)] == [WriteOutcome.CREATED] * 2
    assert of(vault, ADA).count_documents(RecordFilter()) == 2
    assert of(vault, BOB).count_documents(RecordFilter()) == 0


def test_what_concerns_all_records_is_refused(vault: Vault) -> None:
    bound = BoundVault(vault, ADA)
    records = bound.collection(DOCUMENTS)
    for call in (
        lambda: bound.changes,
        bound.events.status,
        lambda: bound.events.expired(START, limit=1),
        lambda: bound.events.compact(lambda progress: None),
        bound.events.scrub,
        lambda: bound.value("x"),
        lambda: bound.subscribe(lambda: None),
        bound.recover,
        records.vector_usage,
        records.save_snapshot,
        records.removals_pending,
        records.recover,
        lambda: records.subscribe(lambda: None),
        lambda: records.changes_after(0, limit=1),
        lambda: records.count_changes_after(0),
        lambda: records.index_removals("x"),
        lambda: records.index_position("x"),
        lambda: bound.transact(lambda tx: tx.value("x") or "").result(),
    ):
        with pytest.raises(PermissionDeniedError):
            call()
    assert bound.failure() is None


def test_a_caller_without_namespaces_has_no_facts(vault: Vault) -> None:
    assert Bounds.of(["ada"], []).restricted(FACTS, RecordFilter()).expression is not None
    records = BoundVault(vault, Bounds.of(["ada"], [])).collection(FACTS)
    assert records.list_documents(RecordFilter(), limit=9) == []
    assert records.distinct_texts("namespace", limit=9) == []


def test_a_caller_is_told_of_its_own_namespaces_page_by_page(vault: Vault) -> None:
    names = [encode_namespace(Namespace(("users", user, f"{i:02}"))) for i in range(11) for user in ("ada", "bob", "c")]
    # Neighbours in the order of texts: only the first is within "users.ada".
    names += [encode_namespace(Namespace(("users", *labels))) for labels in (("ada",), ("ada-1",), ("ada!",), ("ad",))]
    for i, name in enumerate(names):
        last = vault.collection(FACTS).put_document(write(f"fact {i}", "window", fields={"namespace": name}))
    last.result()
    own = sorted(name for name in names if name.startswith("users.ada."))
    for bounds in (ADA, Bounds.of([], ["users.ada.03", "users.ada"])):
        hers = BoundVault(vault, bounds).collection(FACTS)
        assert hers.distinct_texts("namespace", limit=1_000) == own
        assert hers.distinct_texts("namespace", limit=2) == own[:2]
        assert hers.distinct_texts("namespace", after=own[1], limit=2) == own[2:4]
        assert hers.distinct_texts("namespace", within=("users.ada.04", "users.ada.06"), limit=9) == own[5:7]
        assert hers.distinct_texts("namespace", within=("users.b", "users.d"), limit=9) == []
    both = BoundVault(vault, Bounds.of([], ["users.bob", "users.ada"])).collection(FACTS)
    theirs = sorted(name for name in names if name.startswith(("users.ada.", "users.bob.")))
    assert both.distinct_texts("namespace", limit=99) == theirs
    everything = BoundVault(vault, Bounds.of(["ada"], ["*"])).collection(FACTS)
    assert everything.distinct_texts("namespace", limit=1) == [min(names)]
    with pytest.raises(PermissionDeniedError):
        BoundVault(vault, ADA).collection(DOCUMENTS).distinct_texts("type", limit=1)


def test_a_record_that_does_not_fit_is_left_out_and_one_of_others_takes_no_room(vault: Vault) -> None:
    of(vault, ADA).put_document(write("hers", "window")).result()
    of(vault, BOB).put_document(write("his", "window")).result()
    asked: list[str] = []

    def fits(doc_id: str, size: int) -> bool:
        asked.append(doc_id)
        return False

    assert of(vault, ADA).get_documents(["his", "hers", "missing"], fits=fits) == [None, None, None]
    assert asked == ["hers"]
    assert of(vault, ADA).get_documents([]) == []


def test_a_key_of_metadata_exists_only_where_a_record_of_the_caller_has_it(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_records, "_STEP", 4)
    for number in range(9):
        last = of(vault, ADA).put_document(write(f"hers {number}", "window", metadata={"seat": number}))
    of(vault, ADA).put_document(write("hers at last", "window", metadata={"seat": "twelve", "row": 1})).result()
    of(vault, BOB).put_document(write("his", "window", metadata={"age": 7})).result()
    last.result()
    hers = of(vault, ADA)
    assert [hers.has_metadata_key(name) for name in ("seat", "row", "age", "none")] == [True, True, False, False]
    assert [hers.has_metadata_key("seat", like=value) for value in (0, "text", True)] == [True, True, False]


def test_passages_of_others_are_nowhere_whatever_asks_for_them(vault: Vault) -> None:
    of(vault, BOB).put_document(write("his", "window")).result()
    of(vault, ADA).put_document(write("hers", "window")).result()
    his = of(vault, BOB).match_passages(RecordFilter())
    assert len(of(vault, BOB).locate_passages(his.tolist())) == len(his) == 1
    hers = of(vault, ADA)
    own = hers.match_passages(RecordFilter()).tolist()
    assert set(own).isdisjoint(his.tolist())
    few = hers.match_few_passages(RecordFilter(), limit=9)
    assert few is not None
    assert few.tolist() == own
    assert hers.locate_passages(his.tolist()) == []
    assert hers.read_excerpts(his.tolist()) == {}
    assert hers.filter_passages(his, RecordFilter()).tolist() == []
    assert hers.scan_vectors(unit_vector(0), his).passage_ids.tolist() == []
    assert hers.search_keywords("window", his).passage_ids.tolist() == []
    assert hers.delete_document("his").result().outcome is WriteOutcome.MISSING
    assert of(vault, BOB).count_documents(RecordFilter()) == 1


def test_writes_that_fail_as_a_whole_fail_for_whoever_waits() -> None:
    failing: Future[list[str]] = Future()
    failing.set_exception(StorageFailedError("the disk is gone"))
    with pytest.raises(StorageFailedError):
        write_own(["a", "b"], lambda each: each, lambda writes: failing).result()


def test_related_documents_are_those_of_the_users_of_the_caller(vault: Vault) -> None:
    hers = to_document(SemanticMemory("hers", "window", scope=Scope(user="ada"), create_time=START))
    saved = DocumentWrite(
        document=hers, passages=[PassageInput(0, 6, unit_vector(0))], change=ChangeType.SEMANTIC_SAVED
    )
    BoundVault(vault, ADA).collection(SEMANTIC).put_document(saved).result()
    query = RelatedQuery(user="ada", terms=frozenset({"window"}), overlap_above=0.1)
    for bounds, found in ((ADA, ["hers"]), (BOB, [])):
        bound = BoundVault(vault, bounds)
        assert [*bound.collection(SEMANTIC).related_documents(query).doc_ids] == found

        def program(tx: VaultTransaction, expected: list[str] = found) -> str:
            records = tx.collection(SEMANTIC)
            assert [*records.related_documents(query).doc_ids] == expected
            assert records.count_documents(RecordFilter()) == len(expected)
            assert records.count_all() == 1
            return ""

        bound.transact(program).result()


def done(receipt: Any) -> Any:
    """What a write ends with; within a transaction, there is nothing to wait for."""
    return receipt.result() if isinstance(receipt, Future) else receipt


def test_rules_hold_for_all_and_are_written_by_callers_without_bounds_alone(vault: Vault) -> None:
    rule = DocumentWrite(document=Document("strict", "{}"), passages=[], change=ChangeType.RULE_REGISTERED)
    vault.collection(RULES).put_document(rule).result()

    def check(rules: RecordEngine | RecordTransaction) -> None:
        assert [document.doc_id for _, document in rules.list_documents(RecordFilter(), limit=9)] == ["strict"]
        for call in (
            lambda: rules.put_document(rule),
            lambda: rules.delete_document("strict", change=ChangeType.RULE_DELETED),
            lambda: rules.delete_documents(RecordFilter(), change=ChangeType.RULE_DELETED),
            lambda: rules.update_document(DocumentUpdate(doc_id="strict", update=lambda stored: stored, change=None)),
        ):
            with pytest.raises(PermissionDeniedError):
                done(call())

    def program(tx: VaultTransaction) -> str:
        check(tx.collection(RULES))
        return ""

    check(BoundVault(vault, ADA).collection(RULES))
    BoundVault(vault, ADA).transact(program).result()
    assert vault.collection(RULES).count_documents(RecordFilter()) == 1
