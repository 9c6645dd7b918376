"""A filter compiled to SQL means what `domain/filters.matches` says, for any documents and values."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mnemon_server.domain.collections import COMMON_FIELDS, MEMORIES, SEMANTIC, Collection, Field, FieldType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_matches
from mnemon_server.domain.filters import (
    AllOf,
    AnyOf,
    Condition,
    Expression,
    FilterFields,
    NoneOf,
    Operator,
    RecordFilter,
    expression_violations,
)
from mnemon_server.domain.records import MetadataValue, Scope
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite.filters import plan

from tests.contract.sqlite_vaults import open_scanning_the_file
from tests.contract.vault_suite import START, ManualClock, unit_vector

DOCUMENT_COUNT = 100
ANY_NAME = FilterFields("record", {}, prefixes=("",))
"""No field has a type, so that engines are asked to compare any value with any field."""
MANY = 200_000
FEW = 10
TEXTS = [
    "",
    "a",
    "ab",
    "A",
    "z",
    "é",
    "e\u0301",
    "\U0001f44b",
    "\uffff",
    "' OR 1=1 --",
    "x') or 1=1 or ('",
    '"; DROP TABLE memory; --',
    "%",
    "_",
    "?1",
    "$.k",
    "[]",
    "{}",
    "1",
    "1.0",
    "true",
    "null",
    "x" * 256,
    "x" * 257,
    "x" * 256 + "y",
    "\\",
    "\x1f",
    "\r\n",
]
NUMBERS = [0, 1, -1, 1.0, 0.5, -0.0, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 9.223372036854775e18, 1e300]
TIMES = [START + timedelta(days=days) for days in range(4)] + [START + timedelta(microseconds=1)]
LISTS: list[tuple[str, ...]] = [
    (),
    ("",),
    ("a",),
    ("a", "b"),
    ("b", "a"),
    ("a", "a"),
    ("x" * 257,),
    ('"', "\\"),
    ("é",),
]
VALUES: list[MetadataValue] = [*TEXTS, *NUMBERS, True, False, *TIMES, *LISTS]
TELLING_VALUES = ["", "a", "é", "' OR 1=1 --", "x" * 257, 1, 1.0, 0.5, 2**53 + 1, True, TIMES[1], (), ("a", "b")]
KEYS = ["k", "n", "a.b", "never"]
HOSTILE_KEYS = ["' OR 1=1 --", '"', "a'b", "$"]
FIELDS = [*COMMON_FIELDS, *(field.name for collection in (MEMORIES, SEMANTIC) for field in collection.fields)]
FIELD_VALUES: dict[FieldType, list[Any]] = {
    FieldType.TEXT: TEXTS[:12],
    FieldType.BOOLEAN: [None, True, False],
    FieldType.TIME: [None, *TIMES],
    FieldType.NUMBER: [None, *NUMBERS],
    FieldType.TEXTS: LISTS,
}


def random_document(rng: random.Random, number: int, collection: Collection) -> Document:
    """A document whose values come from the same pools as those of the filters."""
    return Document(
        doc_id=rng.choice(TEXTS[1:21]) + str(number),
        content=rng.choice(TEXTS[1:21]),
        metadata={key: rng.choice(VALUES) for key in [*KEYS[:3], *HOSTILE_KEYS] if rng.random() < 0.7},
        scope=Scope(*(rng.choice(["", "", *TEXTS[:12]]) for _ in range(5))),
        fields={field.name: _field_value(rng, field, collection) for field in collection.fields},
        hidden=rng.random() < 0.1,
    )


def _field_value(rng: random.Random, field: Field, collection: Collection) -> Any:
    usual = collection.usual
    if usual and field.name == usual.field and rng.random() < 0.5:
        return usual.value
    return rng.choice(FIELD_VALUES[field.type])


@pytest.fixture(
    scope="module",
    params=[(MEMORIES, plan.BOUNDS), (MEMORIES, (0, 0, 0)), (SEMANTIC, (1, 4, 16))],
    ids=["memory", "memory-wide", "semantic-staged"],
)
def collection(request: pytest.FixtureRequest) -> Iterator[Collection]:
    """A collection. Lower bounds make the choice of an index that of a vault with a million documents."""
    chosen, bounds = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "BOUNDS", bounds)
        yield chosen


@pytest.fixture(scope="module")
def stored(
    collection: Collection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RecordEngine, list[Document]]]:
    yield from stored_documents(tmp_path_factory.mktemp("many"), collection, DOCUMENT_COUNT)


@pytest.fixture(scope="module")
def many_stored(
    collection: Collection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RecordEngine, list[Document]]]:
    yield from stored_documents(tmp_path_factory.mktemp("very many"), collection, MANY)


@pytest.fixture
def few_stored(collection: Collection, tmp_path: Path) -> Iterator[tuple[RecordEngine, list[Document]]]:
    yield from stored_documents(tmp_path, collection, FEW)


def stored_documents(folder: Path, collection: Collection, count: int) -> Iterator[tuple[RecordEngine, list[Document]]]:
    """Random documents and where they are stored. They stay until the next set is asked for."""
    rng, clock = random.Random(11), ManualClock()
    # No filter reads a vector, and a graph of as many equal ones takes minutes.
    vault = open_scanning_the_file(folder, clock)
    engine = vault.collection(collection)
    step = 1 + count // 200
    for start in range(0, count, step):
        clock.now = rng.choice(TIMES)
        new = [random_document(rng, number, collection) for number in range(start, min(count, start + step))]
        passages = [[PassageInput(0, len(document.content), unit_vector(start))] for document in new]
        engine.put_documents(
            [DocumentWrite(document=document, passages=own) for document, own in zip(new, passages, strict=True)]
        ).result()
    documents = [document for _, document in engine.list_documents(RecordFilter(hidden=None), limit=count)]
    assert len(documents) == count
    yield engine, documents
    vault.close()


def values() -> st.SearchStrategy[MetadataValue]:
    return st.one_of(
        st.sampled_from(VALUES),
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=4),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.datetimes(timezones=st.just(UTC), min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1)),
        st.lists(st.sampled_from(TEXTS), max_size=3).map(tuple),
    )


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    field = draw(st.sampled_from([*FIELDS, *(f"metadata.{key}" for key in [*KEYS, *HOSTILE_KEYS]), "no_such_field"]))
    operator = draw(st.sampled_from(Operator))
    match operator:
        case Operator.EXISTS:
            return Condition(field, operator, (draw(st.booleans()),))
        case Operator.CONTAINS:
            return Condition(field, operator, (draw(st.sampled_from(TEXTS)),))
        case Operator.IN | Operator.NIN:
            return Condition(field, operator, tuple(draw(st.lists(values(), min_size=1, max_size=8))))
        case Operator.EQ | Operator.NE:
            return Condition(field, operator, (draw(values()),))
        case _:
            ordered = values().filter(lambda value: not isinstance(value, bool | tuple))
            return Condition(field, operator, (draw(ordered),))


def expressions() -> st.SearchStrategy[Expression]:
    return st.recursive(
        conditions(),
        lambda parts: st.one_of(
            st.lists(parts, max_size=3).map(tuple).map(AllOf),
            st.lists(parts, max_size=3).map(tuple).map(AnyOf),
            st.lists(parts, max_size=3).map(tuple).map(NoneOf),
        ),
        max_leaves=6,
    )


def usual_expressions() -> st.SearchStrategy[Expression]:
    """Expressions of the fields that an index has for documents without the usual text, as confidence is one."""
    policies = st.sampled_from(["stable", "stable", "a", "ab", ""])
    spans = st.builds(
        Condition,
        st.sampled_from(["create_time", "reinforce_time"]),
        st.sampled_from([Operator.GTE, Operator.LT, Operator.EQ, Operator.NE]),
        st.tuples(st.sampled_from(TIMES)),
    )
    texts = st.builds(
        Condition, st.just("decay_policy"), st.sampled_from([Operator.IN, Operator.NIN]), st.tuples(policies, policies)
    )
    missing = st.builds(Condition, st.just("reinforce_time"), st.just(Operator.EXISTS), st.tuples(st.booleans()))
    return st.recursive(
        st.one_of(texts, spans, missing),
        lambda parts: st.builds(
            lambda join, some: join(tuple(some)), st.sampled_from([AllOf, AnyOf, NoneOf]), st.lists(parts, max_size=3)
        ),
        max_leaves=6,
    )


def filters() -> st.SearchStrategy[RecordFilter]:
    scopes = st.builds(Scope, user=st.sampled_from(TEXTS[:12]), agent=st.sampled_from(["", "", "", "a"]))
    equal = st.dictionaries(
        st.sampled_from([*KEYS, *HOSTILE_KEYS]), st.sampled_from([*TEXTS, *NUMBERS, True]), max_size=1
    )
    return st.builds(
        RecordFilter,
        equal=st.one_of(st.just({}), equal),
        scope=st.one_of(st.just(Scope()), scopes),
        expression=st.one_of(st.none(), expressions(), usual_expressions()),
        hidden=st.sampled_from([False, False, True, None]),
    )


def check(stored: tuple[RecordEngine, list[Document]], where: RecordFilter) -> None:
    engine, documents = stored
    wanted = [document for document in documents if document_matches(document, where)]
    for descending in (False, True):
        page = engine.list_documents(where, limit=DOCUMENT_COUNT, descending=descending, fields_only=True)
        first = wanted[: -DOCUMENT_COUNT - 1 : -1] if descending else wanted[:DOCUMENT_COUNT]
        assert [document.doc_id for _, document in page] == [document.doc_id for document in first]
    assert engine.count_documents(where) == len(wanted)
    everything = engine.match_passages(RecordFilter())
    matching = engine.match_passages(where)
    assert len(matching) == sum(not document.hidden for document in wanted)
    some = everything[:: 1 + len(everything) // DOCUMENT_COUNT][::-1]
    assert engine.filter_passages(some, where).tolist() == some[np.isin(some, matching)].tolist()


@settings(max_examples=60, derandomize=True, deadline=None)
@given(where=filters())
@example(where=RecordFilter(expression=AllOf(())))
@example(where=RecordFilter(expression=AnyOf(())))
@example(where=RecordFilter(expression=Condition("importance", Operator.IN, (2**53 + 1, 5))))
@example(where=RecordFilter(expression=Condition("importance", Operator.IN, (2**53, 0.5, True, "1"))))
@example(where=RecordFilter(expression=Condition("keywords", Operator.NIN, ((), ("a", "b"), "a"))))
def test_sql_and_the_reference_choose_the_same_documents(
    stored: tuple[RecordEngine, list[Document]], where: RecordFilter
) -> None:
    check(stored, where)


@pytest.mark.parametrize(
    "field", ["content", "user", "global", "reinforce_time", "create_time", "importance", "keywords", "metadata.k"]
)
def test_every_operator_agrees_for_every_value(stored: tuple[RecordEngine, list[Document]], field: str) -> None:
    for operator in Operator:
        check_operator(stored, field, operator)


def check_operator(stored: tuple[RecordEngine, list[Document]], field: str, operator: Operator) -> None:
    matched = 0
    for value in TELLING_VALUES:
        condition = Condition(field, operator, (value,))
        if list(expression_violations(condition, ANY_NAME)):
            continue
        check(stored, RecordFilter(expression=condition))
        matched += 1
    assert matched


def test_the_largest_allowed_filter_is_answered(few_stored: tuple[RecordEngine, list[Document]]) -> None:
    texts = tuple(f"text {i}" for i in range(255))
    parts = tuple(Condition(f"metadata.k{i}", Operator.NIN, (*texts, i)) for i in range(127))
    whole = RecordFilter(expression=AllOf(parts))
    assert not list(expression_violations(AllOf(parts), FilterFields("record", {})))
    check(few_stored, whole)
    numbers: tuple[Any, ...] = tuple(float(i) if i % 2 else i for i in range(256))
    any_of = AnyOf(tuple(Condition("metadata.n", Operator.IN, numbers) for _ in parts))
    check(few_stored, RecordFilter(expression=any_of))


def test_deleted_passages_match_no_filter(stored: tuple[RecordEngine, list[Document]]) -> None:
    engine, _ = stored
    assert engine.filter_passages(np.array([10**12, 10**13]), RecordFilter()).size == 0
    assert engine.filter_passages(np.empty(0, np.int64), RecordFilter()).size == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=60, derandomize=True, deadline=None)
@given(where=filters())
def test_sql_and_the_reference_choose_the_same_of_many_documents(
    many_stored: tuple[RecordEngine, list[Document]], where: RecordFilter
) -> None:
    """Most values occur in thousands of documents, so that every way to read an index is taken."""
    check(many_stored, where)
