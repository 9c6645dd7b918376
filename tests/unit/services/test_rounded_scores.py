"""What a search shows is the same whether the vectors are in memory in full, as bytes and signs, or as signs alone."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, Scores, Vector
from mnemon_server.engines.quantized import QuantizedVectors
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.ranking.fusion import Fusion
from mnemon_server.services.search import passage_search
from mnemon_server.services.search.passage_queries import PassageQuery
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import SearchSettings

from tests.support.fixed_model import FixedModel
from tests.support.local_vectors import clustered_vectors

COUNT, DIMENSION = 1_200, 64
WORDS = ("apple", "river", "cloud", "stone", "music")
QUERY = clustered_vectors(1, DIMENSION, 2)[0]
FORMS = {
    "full": VectorSettings(),
    "bytes and signs": VectorSettings(full_max=0),
    "signs": VectorSettings(QuantizedVectors.bytes_per_vector(DIMENSION, with_codes=False) * COUNT, full_max=0),
}

Vaults = dict[str, SQLiteVault]


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vaults]:
    with ExitStack() as stack:
        yield {form: stack.enter_context(closing(_filled(tmp_path_factory.mktemp("vault"), form))) for form in FORMS}


@pytest.mark.parametrize("form", ["bytes and signs", "signs"])
@pytest.mark.parametrize("mode", [SearchMode.VECTOR, SearchMode.HYBRID])
@pytest.mark.parametrize("limit", [5, 100, 600])
@pytest.mark.parametrize("exact_scan_max", [10, COUNT])
@pytest.mark.parametrize("zero", [None, 0.3])
def test_every_form_shows_the_same_results_with_the_same_scores(
    vaults: Vaults, form: str, mode: SearchMode, limit: int, exact_scan_max: int, zero: float | None
) -> None:
    query = PassageQuery(text="apple stone", vector=QUERY, where=RecordFilter(), mode=mode, limit=limit)
    shown = [_shown(vaults[name], query, exact_scan_max, zero) for name in ("full", form)]
    assert len(shown[0]) == limit
    assert list(shown[1]) == list(shown[0])
    assert list(shown[1].values()) == pytest.approx(list(shown[0].values()), abs=1e-6)


def test_the_nearest_passages_may_all_be_of_one_document(tmp_path: Path) -> None:
    """They say nothing about how good the other results are: those with the best words are far from the query."""
    toward_query, query = _around_a_query("apple stone")
    writes = [_write("long", "an essay", [toward_query(0.99) for _ in range(100)])]
    for number in range(600):
        writes.append(_write(f"near {number}", "an aside", [toward_query(0.3)]))
        if number % 6 == 0:
            writes.append(_write(f"far {number}", f"{WORDS[number % 4 // 2 * 3]} {number}", [toward_query(0.0)]))
    with closing(_opened(tmp_path / "vault", "bytes and signs")) as vault:
        vault.collection(DOCUMENTS).put_documents(writes).result()
        shown, compared = _shown(vault, query, 10), _shown(vault, query, 10 * COUNT)
    assert list(shown) == list(compared)
    assert [doc_id.split()[0] for doc_id in shown] == ["long", *["far"] * 9]


def test_what_is_stored_during_a_hybrid_search_leaves_out_no_better_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many of the nearest are compared follows from how many passages there are, and these may be twice as many
    by the time when it is decided whether those were all.
    """
    monkeypatch.setattr(passage_search, "HYBRID_SHARE", 2)
    toward_query, query = _around_a_query("apple stone")
    writes = [_write(f"near {number}", "an aside", [toward_query(0.9)]) for number in range(10)]
    writes += [_write(f"nearly {number}", "an aside", [toward_query(0.7)]) for number in range(600)]
    writes += [_write(f"far {number}", f"river {number}", [toward_query(0.0)]) for number in range(390)]
    # Not among the 512 nearest, and its words alone are not enough.
    writes.append(_write("best", "apple and others", [toward_query(0.65)]))
    with closing(_opened(tmp_path / "vault", "bytes and signs")) as vault:
        records = vault.collection(DOCUMENTS)
        records.put_documents(writes).result()
        nearest = records.nearest_vectors

        def then_stored(vector: Vector, *, limit: int, exact: bool = True) -> Scores | None:
            found = nearest(vector, limit=limit, exact=exact)
            more = [_write(f"new {number}", "an aside", [toward_query(-0.5)]) for number in range(1_001)]
            records.put_documents(more).result()
            return found

        monkeypatch.setattr(records, "nearest_vectors", then_stored)
        assert next(iter(_shown(vault, query, 10))) == "best"


def _around_a_query(text: str) -> tuple[Callable[[float], Vector], PassageQuery]:
    """A hybrid query, and what makes vectors with a given cosine to its vector."""
    rng = np.random.default_rng(3)

    def toward_query(cosine: float) -> Vector:
        rest = rng.normal(size=DIMENSION - 1)
        return np.append(cosine, np.sqrt(1 - cosine**2) * rest / np.linalg.norm(rest)).astype(np.float32)

    where = RecordFilter()
    return toward_query, PassageQuery(
        text=text, vector=toward_query(1.0), where=where, mode=SearchMode.HYBRID, limit=10
    )


def _write(doc_id: str, text: str, vectors: list[Vector]) -> DocumentWrite:
    passages = [PassageInput(0, len(text), vector) for vector in vectors]
    return DocumentWrite(document=Document(doc_id, text), passages=passages)


def _opened(folder: Path, form: str) -> SQLiteVault:
    return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, settings=VaultSettings(FORMS[form]))


def _filled(folder: Path, form: str) -> SQLiteVault:
    vault = _opened(folder, form)
    writes = []
    for number, vector in enumerate(clustered_vectors(COUNT, DIMENSION, 1)):
        text = f"{WORDS[number % 5]} {WORDS[number % 3]} {number}"
        writes.append(_write(f"d{number}", text, [vector]))
    vault.collection(DOCUMENTS).put_documents(writes).result()
    return vault


def _shown(vault: SQLiteVault, query: PassageQuery, exact_scan_max: int, zero: float | None = None) -> dict[str, float]:
    """The scores of the documents shown. With a zero, the query's vector is of its text, by a model with that zero."""
    fusion, vector = Fusion(), query.vector
    if zero is not None:
        fusion, query = Fusion(model=FixedModel(zero)), replace(query, vector=None)
    settings = SearchSettings(exact_scan_max=exact_scan_max, fusion=fusion)
    search = PassageSearch(vault.collection(DOCUMENTS), lambda _: vector, settings=settings)
    try:
        return {hit.document.doc_id: hit.score for hit in search.find(query).hits}
    finally:
        search.close()
