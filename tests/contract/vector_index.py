"""What every vector index must do: the suite behind `VectorIndex`. Subclass it and open an index."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import FilterValue, MetadataValue, Scope
from mnemon_server.engines.promises.values import Scores, Vector
from mnemon_server.engines.promises.vector_index import IndexEntry, VectorIndex

DIMENSION = 32
MODEL = f"a-model@1/fp32/{DIMENSION}"
EVERYTHING = RecordFilter()


def unit_vectors(count: int, seed: int, dimension: int = DIMENSION) -> Vector:
    """Vectors of unit length, of shape (count, dimension)."""
    vectors = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # type: ignore[no-any-return]


def entries_of(
    doc_id: str,
    first_passage_id: int,
    vectors: Vector,
    metadata: dict[str, MetadataValue] | None = None,
    scope: Scope | None = None,
) -> list[IndexEntry]:
    """One document's entries, a passage per vector."""
    document = Document(doc_id, f"text of {doc_id}", metadata or {}, scope=scope or Scope())
    return [
        IndexEntry(first_passage_id + index, doc_id, index, f"passage {index} of {doc_id}", vector, document)
        for index, vector in enumerate(vectors)
    ]


def one_each(vectors: Vector, first_passage_id: int = 0, **metadata: Any) -> list[IndexEntry]:
    """A document of one passage per vector; document `doc-7` holds passage 7."""
    ids = range(first_passage_id, first_passage_id + len(vectors))
    return [
        entry
        for i, vector in zip(ids, vectors, strict=True)
        for entry in entries_of(f"doc-{i}", i, vector[None], metadata)
    ]


def as_dict(scores: Scores) -> dict[int, float]:
    assert len(scores.passage_ids) == len(scores.scores) == len(set(scores.passage_ids.tolist()))
    return dict(zip(scores.passage_ids.tolist(), scores.scores.tolist(), strict=True))


def found(index: VectorIndex, query: Vector, equal: RecordFilter = EVERYTHING, limit: int = 10) -> dict[int, float]:
    return as_dict(index.search(query, limit=limit, equal=equal))


def exact(vectors: Vector, query: Vector, limit: int) -> dict[int, float]:
    """What an exact scan finds: the cosine of each position's vector."""
    cosines = vectors.astype(np.float64) @ query.astype(np.float64)
    nearest = np.argsort(-cosines)[:limit]
    return {int(position): float(cosines[position]) for position in nearest}


class VectorIndexContract(ABC):
    """Tests of one implementation. `open_index` may be called again after the previous index was closed."""

    @classmethod
    @abstractmethod
    def open_index(cls, directory: Path) -> VectorIndex:
        """An index in `directory`, not yet opened, for vectors of DIMENSION by MODEL."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture(scope="class")
    @classmethod
    def shared_index(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VectorIndex]:
        index = cls.open_index(tmp_path_factory.mktemp("shared"))
        index.open()
        yield index
        index.close()

    @pytest.fixture
    def index(self, shared_index: VectorIndex, monkeypatch: pytest.MonkeyPatch) -> Iterator[VectorIndex]:
        """An empty index. It is opened once for all tests, because opening one takes seconds."""
        apply = shared_index.apply
        doc_ids: set[str] = set()

        def apply_and_note(entries: Sequence[IndexEntry], deleted: Sequence[str]) -> None:
            doc_ids.update(entry.doc_id for entry in entries)
            apply(entries, deleted)

        with monkeypatch.context() as patch:
            patch.setattr(shared_index, "apply", apply_and_note)
            yield shared_index
        shared_index.apply([], sorted(doc_ids))
        assert shared_index.open().entry_count == 0

    @pytest.fixture
    def new_index(self, directory: Path) -> Iterator[VectorIndex]:
        """A new index for this test alone, whose graph no other test has used."""
        index = self.open_index(directory)
        index.open()
        yield index
        index.close()

    def test_a_new_index_is_empty_and_finds_nothing(self, new_index: VectorIndex) -> None:
        assert new_index.open().entry_count == 0
        assert found(new_index, unit_vectors(1, 0)[0]) == {}
        assert found(new_index, unit_vectors(1, 0)[0], RecordFilter({"a": 1})) == {}

    def test_an_applied_entry_is_found_by_its_vector_with_similarity_one(self, index: VectorIndex) -> None:
        vectors = unit_vectors(50, 1)
        index.apply(one_each(vectors), [])
        for position in range(50):
            [(passage_id, score)] = found(index, vectors[position], limit=1).items()
            assert passage_id == position
            assert score == pytest.approx(1.0, abs=1e-5)

    def test_scores_are_cosines_and_a_large_limit_finds_all_entries(self, new_index: VectorIndex) -> None:
        vectors = unit_vectors(300, 2)
        new_index.apply(one_each(vectors), [])
        for query in unit_vectors(20, 3):
            scores = found(new_index, query, limit=300)
            assert len(scores) >= 297
            expected = exact(vectors, query, 300)
            assert all(score == pytest.approx(expected[i], abs=1e-5) for i, score in scores.items())

    def test_the_nearest_ten_are_nearly_always_the_true_ones(self, new_index: VectorIndex) -> None:
        vectors = unit_vectors(1500, 4)
        new_index.apply(one_each(vectors), [])
        queries = unit_vectors(50, 5)
        hits = sum(len(found(new_index, query).keys() & exact(vectors, query, 10).keys()) for query in queries)
        assert hits >= 0.99 * 500

    def test_opposite_vectors_score_minus_one(self, index: VectorIndex) -> None:
        vector = unit_vectors(1, 6)
        index.apply(one_each(vector), [])
        assert found(index, -vector[0])[0] == pytest.approx(-1.0, abs=1e-5)

    def test_the_limit_bounds_the_answer(self, index: VectorIndex) -> None:
        vectors = unit_vectors(40, 7)
        index.apply(one_each(vectors), [])
        assert [len(found(index, vectors[0], limit=limit)) for limit in (0, 1, 7, 40, 1000)] == [0, 1, 7, 40, 40]

    def test_replacing_a_document_leaves_no_old_passage(self, index: VectorIndex) -> None:
        old, new = unit_vectors(5, 8), unit_vectors(2, 9)
        index.apply(entries_of("doc", 0, old), [])
        index.apply(entries_of("doc", 10, new), [])
        assert set(found(index, old[4])) == {10, 11}
        assert index.open().entry_count == 2

    def test_replacing_a_document_leaves_no_old_metadata_or_scope(self, index: VectorIndex) -> None:
        vectors = unit_vectors(2, 10)
        index.apply(entries_of("doc", 0, vectors[:1], {"old": 1, "kept": "a"}, Scope(user="ann", project="p")), [])
        index.apply(entries_of("doc", 1, vectors[1:], {"kept": "b"}, Scope(user="bob")), [])
        gone = [{"old": 1}, {"kept": "a"}]
        assert all(found(index, vectors[0], RecordFilter(equal)) == {} for equal in gone)
        assert found(index, vectors[0], RecordFilter(scope=Scope(project="p"))) == {}
        assert found(index, vectors[0], RecordFilter(scope=Scope(user="ann"))) == {}
        assert set(found(index, vectors[0], RecordFilter({"kept": "b"}, Scope(user="bob")))) == {1}

    def test_deleted_documents_are_not_found(self, index: VectorIndex) -> None:
        vectors = unit_vectors(6, 11)
        index.apply([*entries_of("gone", 0, vectors[:3]), *entries_of("kept", 3, vectors[3:])], [])
        index.apply([], ["gone", "never there"])
        assert set(found(index, vectors[0])) == {3, 4, 5}

    def test_applying_and_deleting_in_one_call_does_both(self, index: VectorIndex) -> None:
        vectors = unit_vectors(2, 12)
        index.apply(entries_of("first", 0, vectors[:1]), [])
        index.apply(entries_of("second", 1, vectors[1:]), ["first"])
        assert set(found(index, vectors[0])) == {1}

    def test_applying_the_same_again_changes_nothing(self, index: VectorIndex) -> None:
        vectors = unit_vectors(30, 13)
        changes = one_each(vectors[:20], a=1) + entries_of("long", 100, vectors[20:])
        index.apply(changes, ["other"])
        before = found(index, vectors[0], limit=100)
        index.apply(changes, ["other"])
        assert found(index, vectors[0], limit=100) == pytest.approx(before, abs=1e-6)
        assert index.open().entry_count == 30

    def test_applying_nothing_is_allowed(self, index: VectorIndex) -> None:
        index.apply([], [])
        assert index.open().entry_count == 0

    def test_filters_combine_with_and(self, index: VectorIndex) -> None:
        vectors = unit_vectors(8, 14)
        for i in range(8):
            scope = Scope(user="ann" if i & 4 else "bob")
            index.apply(
                entries_of(f"d{i}", i, vectors[i : i + 1], {"a": bool(i & 1), "b": "x" if i & 2 else "y"}, scope), []
            )
        assert set(found(index, vectors[0], RecordFilter({"a": True}))) == {1, 3, 5, 7}
        assert set(found(index, vectors[0], RecordFilter({"a": True, "b": "x"}))) == {3, 7}
        assert set(found(index, vectors[0], RecordFilter({"a": True, "b": "x"}, Scope(user="ann")))) == {7}
        assert found(index, vectors[0], RecordFilter({"a": True, "c": "x"})) == {}

    def test_a_filter_matches_its_value_and_no_text_boolean_or_other_number(self, index: VectorIndex) -> None:
        cases: list[tuple[FilterValue, list[FilterValue]]] = [
            (5, ["5", True, 6, 5.5]),
            (5.5, ["5.5", 6, 5.25]),
            (5.0, ["5", "5.0", True]),
            (6.0, [5, "6"]),
            (True, ["true", "True", 1, 1.0, False]),
            (False, ["", 0, True]),
            ("5", [5, 5.0, True]),
            ("", [False, 0, " "]),
            (2**62 + 1, [2**62, str(2**62 + 1)]),
            (-(2**63), [-(2**63) + 1]),
            (1e300, ["1e300", 10**18]),
            (0.1, ["0.1", 1]),
            ("naïve 中文 😀 $ne", ["naive"]),
        ]
        vectors = unit_vectors(10, 15)
        for case, (value, others) in enumerate(cases):
            for number, held in enumerate([value, *others]):
                held_by = entries_of(f"d{case}-{number}", 10 * case + number, vectors[:1], {f"key{case}": held})
                index.apply(held_by, [])
        found_by_case = [
            set(found(index, vectors[0], RecordFilter({f"key{case}": value}))) for case, (value, _) in enumerate(cases)
        ]
        assert found_by_case == [{10 * case} for case in range(len(cases))]

    def test_every_kind_of_metadata_can_be_stored(self, index: VectorIndex) -> None:
        metadata: dict[str, MetadataValue] = {
            "list": ("a", "b"),
            "empty_list": (),
            "time": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
            "text": "x" * 65_536,
            "_a.b-C9": 1,
        }
        vector = unit_vectors(1, 16)
        index.apply(entries_of("doc", 0, vector, metadata), [])
        assert set(found(index, vector[0], RecordFilter({"_a.b-C9": 1}))) == {0}

    def test_each_field_of_the_scope_filters(self, index: VectorIndex) -> None:
        fields = ["user", "household", "persona", "agent", "project"]
        vector = unit_vectors(1, 17)
        for number, field in enumerate(fields):
            index.apply(entries_of(f"in-{field}", number, vector, {field: "other"}, Scope(**{field: "me"})), [])
            index.apply(entries_of(f"out-{field}", 100 + number, vector, {field: "me"}), [])
        by_field = {field: set(found(index, vector[0], RecordFilter(scope=Scope(**{field: "me"})))) for field in fields}
        assert by_field == {field: {number} for number, field in enumerate(fields)}

    def test_unusual_ids_and_texts_are_kept_apart(self, index: VectorIndex) -> None:
        doc_ids = [
            "a",
            "A",
            "a ",
            " a",
            "a/1",
            "a#1",
            "ä",
            "a\u0308",
            "中文",
            "😀",
            "x" * 512,
            "'; drop table--",
            "$or",
        ]
        vectors = unit_vectors(len(doc_ids), 18)
        for number, doc_id in enumerate(doc_ids):
            index.apply(entries_of(doc_id, number, vectors[number : number + 1]), [])
        assert index.open().entry_count == len(doc_ids)
        index.apply([], doc_ids[::2])
        assert set(found(index, vectors[0], limit=100)) == set(range(1, len(doc_ids), 2))

    def test_reset_removes_everything_and_starts_a_new_generation(self, new_index: VectorIndex) -> None:
        vectors = unit_vectors(20, 19)
        before = new_index.open()
        new_index.apply(one_each(vectors), [])
        after = new_index.reset()
        assert (after.entry_count, found(new_index, vectors[0])) == (0, {})
        assert after.generation not in ("", before.generation)
        new_index.apply(one_each(vectors[:3]), [])
        assert new_index.open().entry_count == 3
        assert new_index.open().generation == after.generation

    def test_reopening_keeps_entries_and_generation(self, directory: Path) -> None:
        vectors = unit_vectors(20, 20)
        first = self.open_index(directory)
        before = first.open()
        first.apply(one_each(vectors), [])
        first.close()
        second = self.open_index(directory)
        try:
            after = second.open()
            assert (after.generation, after.entry_count) == (before.generation, 20)
            assert second.name == first.name
            assert [next(iter(found(second, vectors[i], limit=1))) for i in range(20)] == list(range(20))
        finally:
            second.close()

    def test_closing_twice_does_nothing(self, new_index: VectorIndex) -> None:
        new_index.close()
        new_index.close()

    def test_many_entries_in_one_call_are_all_there(self, index: VectorIndex) -> None:
        vectors = unit_vectors(1300, 21)
        index.apply([*one_each(vectors[:700]), *entries_of("long", 1000, vectors[700:])], [])
        assert index.open().entry_count == 1300
        index.apply([], [f"doc-{i}" for i in range(700)])
        assert index.open().entry_count == 600

    def test_ten_threads_write_and_search_at_once(self, new_index: VectorIndex) -> None:
        vectors = unit_vectors(200, 22)

        def work(number: int) -> None:
            own: Sequence[int] = range(number * 20, number * 20 + 20)
            for start in own[::5]:
                new_index.apply(one_each(vectors[start : start + 5], start, worker=number), [])
                assert start in found(new_index, vectors[start], RecordFilter({"worker": number}))
            new_index.apply([], [f"doc-{own[0]}"])
            assert own[0] not in found(new_index, vectors[own[0]], limit=50)

        with ThreadPoolExecutor(10) as threads:
            list(threads.map(work, range(10)))
        assert new_index.open().entry_count == 190
        assert len(found(new_index, vectors[1], limit=200)) == 190
