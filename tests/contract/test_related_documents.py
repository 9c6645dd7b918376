"""What every vault must find related to a document: all that comparing it with each document finds."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DOCUMENTS, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.related import RelatedDocument, RelatedQuery
from mnemon_server.engines.promises.values import DocumentUpdate
from mnemon_server.engines.promises.vault import Vault

from tests.contract.sqlite_vaults import open_quantized, open_scanning_the_file, open_sqlite
from tests.contract.vault_suite import START, ManualClock, unit_vector
from tests.contract.vault_transactions import statement

DOCUMENT_COUNT = 120
USERS = ("u", "u", "v", "")
HOUSEHOLDS, PERSONAS = ("", "", "h"), ("", "", "p")
TERMS = ("a", "b", "c", "d", "e", "\u00e9", "\u6771\u4eac", "'", "%")
TIMES = (None, *(START + timedelta(minutes=7 * i) for i in range(6)), START + timedelta(microseconds=1))
NUMBERS = (None, 0.0, 0.1, 0.25, 0.5, 0.7, 0.8, 1.0)


def drawn(rng: random.Random) -> dict[str, Any]:
    """Random values for the fields that relate documents."""
    return {
        "terms": tuple(sorted(rng.sample(TERMS, rng.randrange(5)))),
        "time": rng.choice(TIMES),
        "importance": rng.choice(NUMBERS),
    }


def fill(engine: RecordEngine, rng: random.Random) -> None:
    """Documents of several users. Some were later changed, hidden, shown again or deleted."""
    for i in range(DOCUMENT_COUNT):
        passages = {"content": "one two", "parts": 2} if i % 10 == 0 else {}
        scope = Scope(rng.choice(USERS), rng.choice(HOUSEHOLDS), rng.choice(PERSONAS), rng.choice(("", "x")))
        engine.put_document(
            statement(f"s{i}", seed=i, scope=scope, hidden=i % 9 == 0, **passages, **drawn(rng))
        ).result()
    for i in rng.sample(range(DOCUMENT_COUNT), 80):
        changed = {
            0: {"hidden": True},
            1: {"hidden": False},
            2: {"scope": Scope(user=rng.choice(USERS))},
            3: {"fields": drawn(rng)},
        }
        if i % 5 == 4:
            engine.delete_document(f"s{i}", change=ChangeType.SEMANTIC_PRUNED).result()
        else:
            update(engine, f"s{i}", changed[i % 5])


def update(engine: RecordEngine, doc_id: str, changes: dict[str, Any]) -> None:
    def apply(old: Document) -> Document:
        return replace(old, **{**changes, "fields": {**old.fields, **changes.get("fields", {})}})

    engine.update_document(DocumentUpdate(doc_id=doc_id, update=apply, change=ChangeType.SEMANTIC_PRUNED)).result()


def compared(position: int, document: Document, query: RelatedQuery) -> RelatedDocument:
    """A single document compared with the query."""
    fields: Any = document.fields
    cosines = [
        float(np.clip(np.float32(passage.embedding) @ query.vector, -1.0, 1.0))
        for passage in document.passages
        if query.vector is not None
    ]
    return RelatedDocument(
        doc_id=document.doc_id,
        position=position,
        similarity=max(cosines, default=None),
        shared_terms=len(query.terms & set(fields["terms"])),
        term_count=len(fields["terms"]),
        time=fields["time"],
        number=fields["importance"],
    )


def is_related(other: RelatedDocument, query: RelatedQuery) -> bool:
    """Whether one of the four relations of RelatedQuery holds."""
    smaller = min(len(query.terms), other.term_count)
    overlap = other.shared_terms / smaller if smaller else None
    relations: list[bool] = []
    if query.similarity_above is not None and other.similarity is not None:
        relations.append(other.similarity > query.similarity_above)
    if query.overlap_above is not None and overlap is not None:
        relations.append(overlap > query.overlap_above)
    if query.time is not None and query.time_within is not None and other.time is not None:
        relations.append(abs(query.time - other.time) <= query.time_within)
    if query.number is not None and query.number_apart is not None and other.number is not None:
        relations.append(abs(query.number - other.number) > query.number_apart)
    return any(relations)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def queries() -> st.SearchStrategy[RelatedQuery]:
    return st.builds(
        RelatedQuery,
        user=st.sampled_from([*USERS, "nobody"]),
        household=st.sampled_from(HOUSEHOLDS),
        persona=st.sampled_from(PERSONAS),
        without=st.frozensets(st.sampled_from([f"s{i}" for i in range(DOCUMENT_COUNT)]), max_size=20),
        vector=maybe(st.integers(0, 2 * DOCUMENT_COUNT).map(unit_vector)),
        similarity_above=maybe(st.sampled_from([-1.0, 0.0, 0.3, 0.7, 0.99])),
        terms=st.frozensets(st.sampled_from([*TERMS, "never"]), max_size=5),
        overlap_above=maybe(st.sampled_from([0.0, 0.3, 0.5, 0.99, 1.0])),
        time=maybe(st.sampled_from(TIMES[1:])),
        time_within=maybe(st.sampled_from([timedelta(0), timedelta(minutes=7), timedelta(hours=9), timedelta.max])),
        number=maybe(st.sampled_from([*NUMBERS[1:], 0.1 + 0.2])),
        number_apart=maybe(st.sampled_from([0.0, 0.2, 0.3, 0.5, 1.0, float("inf")])),
    )


@pytest.fixture(scope="module", params=[open_sqlite, open_quantized, open_scanning_the_file])
def open_vault(request: pytest.FixtureRequest) -> Callable[[Path, ManualClock], Vault]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def filled(
    open_vault: Callable[[Path, ManualClock], Vault], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Vault, list[tuple[int, Document]]]]:
    vault = open_vault(tmp_path_factory.mktemp("related") / "d", ManualClock())
    engine = vault.collection(SEMANTIC)
    fill(engine, random.Random(5))
    yield vault, engine.list_documents(RecordFilter(), limit=1_000, vectors=True)
    vault.close()


@pytest.fixture
def vault(open_vault: Callable[[Path, ManualClock], Vault], tmp_path: Path) -> Iterator[Vault]:
    vault = open_vault(tmp_path / "d", ManualClock())
    yield vault
    vault.close()


@settings(max_examples=100, derandomize=True, deadline=None)
@given(query=queries())
def test_the_query_finds_what_comparing_each_document_finds(
    filled: tuple[Vault, list[tuple[int, Document]]], query: RelatedQuery
) -> None:
    vault, documents = filled
    others = {
        document.doc_id: compared(position, document, query)
        for position, document in documents
        if (document.scope.user, document.scope.household, document.scope.persona)
        == (query.user, query.household, query.persona)
        and document.doc_id not in query.without
    }

    found = list(vault.collection(SEMANTIC).related_documents(query))

    assert [each.position for each in found] == sorted(each.position for each in found)
    assert {doc_id for doc_id, other in others.items() if is_related(other, query)} <= {o.doc_id for o in found}
    for each in found:
        other = others[each.doc_id]
        expected = other._replace(similarity=None, term_count=other.term_count if other.shared_terms else 0)
        assert each._replace(similarity=None) == expected
        assert each.similarity == (None if other.similarity is None else pytest.approx(other.similarity, abs=1e-6))
    inside: list[RelatedDocument] = []

    def look(tx: Any) -> str:
        inside.extend(tx.collection(SEMANTIC).related_documents(query))
        return ""

    vault.transact(look).result()
    assert inside == found


def test_each_relation_is_found_by_itself(vault: Vault) -> None:
    cases = [
        ({"vector": unit_vector(1), "similarity_above": 0.9}, ["near"]),
        ({"terms": frozenset("xyz"), "overlap_above": 0.6}, ["alike"]),
        ({"time": START, "time_within": timedelta(minutes=30)}, ["then"]),
        ({"number": 0.5, "number_apart": 0.3}, ["low", "high"]),
        ({"vector": unit_vector(1), "terms": frozenset("xyz"), "time": START, "number": 0.5}, []),
        ({"similarity_above": 0.1, "overlap_above": 0.1, "time_within": START - START, "number_apart": 0.1}, []),
    ]
    for asked, expected in cases:
        engine, scope, later = vault.collection(SEMANTIC), Scope(user="u"), START + timedelta(hours=1)
        for number, (memory_id, fields) in enumerate(
            {
                "near": {"seed": 1},
                "alike": {"terms": ("w", "x", "y")},
                "less": {"terms": ("w", "x")},
                "then": {"time": START - timedelta(minutes=30)},
                "later": {"time": later},
                "low": {"importance": 0.1},
                "middle": {"importance": 0.75},
                "high": {"importance": 0.9},
                "bare": {},
            }.items()
        ):
            engine.put_document(statement(memory_id, **{"seed": 20 + number, "scope": scope, **fields})).result()
        assert [other.doc_id for other in engine.related_documents(RelatedQuery(user="u", **asked))] == expected
        for scope_asked in ({"user": "other"}, {"user": "u", "household": "h"}, {"user": "u", "persona": "p"}):
            assert len(engine.related_documents(RelatedQuery(**scope_asked, **asked))) == 0


def test_a_collection_without_related_fields_has_no_related_documents(vault: Vault) -> None:
    with pytest.raises(ValueError, match="'document' have no related fields"):
        vault.collection(DOCUMENTS).related_documents(RelatedQuery(user="u"))
