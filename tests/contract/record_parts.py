"""What every record engine returns of documents that it does not read in full. Subclass it and open a vault."""

from dataclasses import replace

from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import EXCERPT_CHARACTERS_MAX, OPENING_CHARACTERS_MAX, SMALL_BYTES

from tests.contract.vault_suite import VaultSuite, unit_vector, write


class RecordPartsContract(VaultSuite):
    """Reads with a size limit, and reads of parts of a document."""

    def test_a_document_that_does_not_fit_is_not_read_and_its_size_is_known_first(self, engine: RecordEngine) -> None:
        for i in range(4):
            engine.put_document(write(f"d{i}", "é" * 1_000 * (i + 1), seed=i, metadata={"text": "x" * 500})).result()
        sizes: dict[str, int] = {}

        def fits(doc_id: str, size: int) -> bool:
            sizes[doc_id] = size
            return size < 7_000

        found = engine.get_documents(["d3", "d1", "none", "d0", "d1"], fits=fits)
        assert [document and document.doc_id for document in found] == [None, "d1", None, "d0", "d1"]
        assert list(sizes) == ["d3", "d1", "d0"]
        assert all(0 <= sizes[f"d{i}"] - (2_000 * (i + 1) + 500) < 100 for i in (3, 1, 0))
        run = engine.list_documents(RecordFilter(), limit=10, fits=fits)
        assert [document.doc_id for _, document in run] == ["d0", "d1", "d2"]
        reverse = engine.list_documents(RecordFilter(), limit=2, descending=True, fits=lambda *_: True)
        assert [document.doc_id for _, document in reverse] == ["d3", "d2"]
        engine.get_documents(["d0"], vectors=True, fits=fits)
        assert sizes["d0"] >= 2_500 + 4 * len(unit_vector(0))

    def test_a_small_document_is_read_whole_except_for_its_passages(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", "é" * 1_000, metadata={"k": ("v", "w")}, scope=Scope(user="ada"))).result()
        [whole] = engine.get_documents(["d"])
        [fields] = engine.get_documents(["d"], fields_only=True)
        assert whole is not None
        assert engine.get_small_document("d") == replace(whole, passages=())
        assert engine.get_small_document("d", fields_only=True) == fields

    def test_a_small_document_is_read_as_soon_as_it_is_written(self, engine: RecordEngine) -> None:
        for content in ("one", "two"):
            engine.put_document(write("d", content)).result()
            document = engine.get_small_document("d")
            assert document is not None and document.content == content
        engine.delete_document("d").result()
        assert engine.get_small_document("d") is None

    def test_a_large_document_is_not_a_small_one(self, engine: RecordEngine) -> None:
        engine.put_document(write("large", "x" * SMALL_BYTES)).result()
        engine.put_document(write("metadata", "x", metadata={"k": "x" * SMALL_BYTES})).result()
        for doc_id in ("large", "metadata", "missing"):
            assert engine.get_small_document(doc_id) is None
        assert engine.get_small_document("large", fields_only=True) is not None

    def test_fields_come_without_the_texts_that_they_repeat(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", "a text", metadata={"k": "v"}, scope=Scope(user="ada"))).result()
        [document] = engine.get_documents(["d"], fields_only=True)
        [(_, listed_one)] = engine.list_documents(RecordFilter(), limit=1, fields_only=True)
        assert document == listed_one
        assert document is not None
        assert (document.content, document.metadata, document.passages) == ("", {}, ())
        assert (document.doc_id, document.scope, document.revision) == ("d", Scope(user="ada"), 1)

    def test_fields_come_with_vectors_when_asked_for(self, engine: RecordEngine) -> None:
        engine.put_document(write("d", "a text", seed=3)).result()
        [whole] = engine.get_documents(["d"], vectors=True)
        [document] = engine.get_documents(["d"], vectors=True, fields_only=True)
        assert document is not None and whole is not None
        assert (document.content, document.passages) == ("", whole.passages)
        assert document.passages[0].embedding

    def test_excerpts_hold_the_passages_and_the_start_of_their_documents(self, engine: RecordEngine) -> None:
        metadata = {"author": "Ann", "role": 1, "other": "x"}
        engine.put_document(write("long", "Ann: " + "é" * 40_000, seed=1, metadata=metadata)).result()
        engine.put_document(write("split", "one two", seed=2, parts=2)).result()
        places = {place.passage_id: place for place in engine.locate_passages(list(range(1, 10)))}
        found = engine.read_excerpts([*places, 99], metadata_keys=("author", "role", "from"))
        assert set(found) == set(places)
        for passage_id, excerpt in found.items():
            place = places[passage_id]
            content = "one two" if place.doc_id == "split" else "Ann: " + "é" * 40_000
            assert excerpt.text == content[place.start : place.end][:EXCERPT_CHARACTERS_MAX]
            assert excerpt.opening == content[:OPENING_CHARACTERS_MAX]
            assert excerpt.metadata == ({} if place.doc_id == "split" else {"author": "Ann"})
