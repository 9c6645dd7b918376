"""Author, date and title in the metadata: embedded and indexed with the text, whatever makes vectors and words."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.archive import ExportSelection, ImportStart
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC, Collection
from mnemon_server.domain.documents import Document, IndexRequest, UpdateDocument
from mnemon_server.domain.events import Event, EventSelection
from mnemon_server.domain.facts import FactIndex, PutFact
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.memories import CreateMemory, Memory, UpdateMemory
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import SearchMode
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.promises.values import PassageInput, Vector
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.upkeep.rebuilding import rebuild
from mnemon_server.engines.sqlite.upkeep.reembed import reembed
from mnemon_server.engines.sqlite.upkeep.shadow import ShadowModel, VaultModels
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.heads import Heads
from mnemon_server.ranking.settings import RankingSettings
from mnemon_server.services.archive.exporting import ExportMessage
from mnemon_server.services.archive.store import ArchiveStore
from mnemon_server.services.archive.vectors import as_stored, stored_texts
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.documents.vector_store import RecordVectorStore
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.search.embedded_passages import embed_blocking
from mnemon_server.services.semantic.store import SemanticSettings, SemanticStore

from tests.contract.vault_suite import found_by_word
from tests.support.semantic_stores import NEVER_SLOW, statement
from tests.support.server import wait_until

HEADS = Heads(("title", "speaker", "author", "date"))
ANN = {"speaker": "Ann", "date": "2023-05-08", "topic": "sports"}
SWAM, HEAD = "I swam in the lake.", "Ann (8 May 2023, 2023-05-08): "
SPACE = Namespace(("org", "acme"))
WORDS = 12
"""The passages of the embedder have so many words."""


class Opened:
    """The stores over a vault."""

    def __init__(self, vault: Vault, batcher: EmbeddingBatcher) -> None:
        self.vault, self.embedder = vault, HashingEmbedder(64, WORDS)
        self.documents = DocumentStore(vault.collection(DOCUMENTS), batcher)
        self.memories = MemoryStore(vault.collection(MEMORIES), batcher)
        self.facts = FactStore(vault, batcher)
        self.statements = SemanticStore(vault, batcher, resolver=None, settings=SemanticSettings(100, NEVER_SLOW))
        self.rules = RuleStore(vault)
        self.archive = ArchiveStore(vault, batcher, rules=self.rules)

    def vectors(self, collection: Collection, doc_id: str) -> list[list[float]]:
        [found] = self.vault.collection(collection).get_documents([doc_id], vectors=True)
        assert found is not None
        return [list(passage.embedding or ()) for passage in found.passages]

    def made_of(self, *texts: str) -> list[list[float]]:
        return [vector.tolist() for vector in self.embedder.embed(texts)]

    def found(self, collection: Collection, query: str) -> set[str]:
        return set(found_by_word(self.vault.collection(collection), query))

    async def put(self, doc_id: str = "d", content: str = SWAM, metadata: dict[str, Any] | None = None) -> None:
        await self.documents.index(
            IndexRequest(document=Document(doc_id, content, ANN if metadata is None else metadata))
        )

    async def put_fact(self, key: str, value: dict[str, Any], **fields: Any) -> str:
        [result] = await self.facts.put_many([PutFact(namespace=SPACE, key=key, value=value, **fields)])
        assert not isinstance(result, Exception), result
        [(_, document)] = [
            row
            for row in self.vault.collection(FACTS).list_documents(RecordFilter(), limit=100)
            if row[1].fields["fact_key"] == key
        ]
        return document.doc_id


def vault_with(folder: Path, heads: Heads = HEADS, models: VaultModels | None = None, model: str = "m") -> SQLiteVault:
    settings = VaultSettings(ranking=RankingSettings(heads=heads), models=models or VaultModels(), is_durable=False)
    return SQLiteVault(folder, model_identity=model, dimension=64, settings=settings)


@asynccontextmanager
async def over(vault: Vault) -> AsyncIterator[Opened]:
    try:
        async with EmbeddingBatcher(HashingEmbedder(64, WORDS)) as batcher:
            opened = Opened(vault, batcher)
            yield opened
            for store in (
                opened.documents,
                opened.memories,
                opened.facts,
                opened.statements,
                opened.archive,
                opened.rules,
            ):
                await store.aclose()
    finally:
        vault.close()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    async with over(vault_with(tmp_path)) as stores:
        yield stores


async def test_author_and_date_of_a_document_are_searched_and_not_shown(opened: Opened) -> None:
    await opened.put()
    assert opened.vectors(DOCUMENTS, "d") == opened.made_of(HEAD + SWAM)
    assert opened.found(DOCUMENTS, "ann") == opened.found(DOCUMENTS, "may") == {"d"}
    assert not opened.found(DOCUMENTS, "sports")
    document = await opened.documents.get("d")
    assert (document.content, document.metadata) == (SWAM, ANN)
    assert [(passage.start, passage.end) for passage in document.passages] == [(0, len(SWAM))]


async def test_keys_with_capital_letters_and_dates_in_their_short_form_are_searched(opened: Opened) -> None:
    await opened.put(metadata={"Author": "Ann", "Date": "2026-03-14"})
    for query in ("ann", "14 march 2026", "2026-03-14", "20260314"):
        assert opened.found(DOCUMENTS, query) == {"d"}
    await opened.documents.update(UpdateDocument(document=Document("d", ""), set_metadata={"Author": "Bo"}))
    assert opened.vectors(DOCUMENTS, "d") == opened.made_of("Bo (14 March 2026, 2026-03-14): " + SWAM)
    assert (opened.found(DOCUMENTS, "ann"), opened.found(DOCUMENTS, "bo")) == (set(), {"d"})
    await opened.documents.delete("d")
    assert not opened.found(DOCUMENTS, "bo lake 2026-03-14")


async def test_the_first_passage_has_the_head_and_no_word_is_lost(opened: Opened) -> None:
    text = " ".join(f"word{number}" for number in range(30))
    await opened.put(content=text)
    passages = (await opened.documents.get("d")).passages
    assert (passages[0].start, passages[-1].end) == (0, len(text))
    cut = [text[passage.start : passage.end] for passage in passages]
    assert all(len(each.split()) <= WORDS for each in [HEAD + cut[0], *cut[1:]])
    assert opened.vectors(DOCUMENTS, "d") == opened.made_of(HEAD + cut[0], *cut[1:])
    assert all(f"word{number}" in " ".join(cut).split() for number in range(30))


async def test_a_head_longer_than_a_passage_leaves_the_text_whole(opened: Opened) -> None:
    await opened.put(metadata={"title": "a b c d e f g h i j k l m n o p"})
    passages = (await opened.documents.get("d")).passages
    assert (passages[0].start, passages[-1].end) == (0, len(SWAM))
    assert opened.found(DOCUMENTS, "lake") == {"d"}


async def test_a_change_of_the_author_is_embedded_and_indexed_and_one_of_a_topic_is_not(opened: Opened) -> None:
    await opened.put()
    [before] = opened.vault.collection(DOCUMENTS).search_keywords("lake").passage_ids.tolist()
    await opened.documents.update(UpdateDocument(document=Document("d", ""), set_metadata={"topic": "water"}))
    assert opened.vault.collection(DOCUMENTS).search_keywords("lake").passage_ids.tolist() == [before]
    await opened.documents.update(UpdateDocument(document=Document("d", ""), set_metadata={"speaker": "Bo"}))
    assert opened.vectors(DOCUMENTS, "d") == opened.made_of(HEAD.replace("Ann", "Bo") + SWAM)
    assert (opened.found(DOCUMENTS, "ann"), opened.found(DOCUMENTS, "bo")) == (set(), {"d"})
    await opened.documents.update(UpdateDocument(document=Document("d", ""), remove_metadata=("speaker", "date")))
    assert opened.vectors(DOCUMENTS, "d") == opened.made_of(SWAM)
    assert not opened.found(DOCUMENTS, "bo may")
    await opened.documents.delete("d")
    assert not opened.found(DOCUMENTS, "lake")


def test_the_vector_store_embeds_changed_metadata(tmp_path: Path) -> None:
    embedder = HashingEmbedder(64)
    with closing(vault_with(tmp_path)) as vault:
        records = vault.collection(DOCUMENTS)
        with closing(RecordVectorStore(records, embedder)) as store:
            store.store("d", SWAM, {"speaker": "Ann"})
            store.update_metadata("d", {"speaker": "Bo"})
            assert store.search("Bo: " + SWAM)[0].similarity == pytest.approx(1.0, abs=1e-6)
            assert set(found_by_word(records, "bo")) == {"d"}


async def test_a_memory_keeps_the_vector_that_its_caller_gave(opened: Opened) -> None:
    own = [1.0, *[0.0] * 63]
    given, made = (f"3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f1{number}" for number in range(2))
    for memory_id, embedding in ((given, own), (made, None)):
        memory = Memory(memory_id, SWAM, metadata=ANN)
        [created] = await opened.memories.create_many([CreateMemory(memory=memory, embedding=embedding)])
        assert not isinstance(created, Exception)
        await opened.memories.update(UpdateMemory(memory=Memory(memory_id, ""), set_metadata={"speaker": "Bo"}))
    assert opened.vectors(MEMORIES, given) == [own]
    assert opened.vectors(MEMORIES, made) == opened.made_of(HEAD.replace("Ann", "Bo") + SWAM)
    assert (opened.found(MEMORIES, "ann"), opened.found(MEMORIES, "bo")) == (set(), {given, made})


async def test_a_fact_is_searched_by_its_own_values_and_its_metadata_once(opened: Opened) -> None:
    cases = [
        ({"content": SWAM}, {"metadata": ANN}, [HEAD + SWAM]),
        ({"content": SWAM, "speaker": "Ann"}, {}, ["Ann: " + SWAM]),
        ({"text": SWAM, "speaker": "Ann"}, {}, ["Ann", SWAM]),
        ({"text": SWAM, "n": {"more": "It rained."}}, {"metadata": {"title": "Trip"}}, ["Trip. It rained.", SWAM]),
        ({"content": SWAM}, {"metadata": ANN, "index": FactIndex(off=True)}, []),
    ]
    for value, fields, texts in cases:
        doc_id = await opened.put_fact("k", value, **fields)
        assert opened.vectors(FACTS, doc_id) == (opened.made_of(*texts) if texts else [])


def test_an_event_is_found_by_who_told_it(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with closing(vault_with(tmp_path)) as vault:
        assert vault.events.wait_until_warm(60.0)
        event = Event("e", "said", now, SWAM, record_time=now, metadata={"speaker": "Ann"})
        vault.events.append([EventWrite(event, id_is_new=True)]).result()
        among = vault.events.sequences(EventSelection())
        assert vault.events.search_text("ann", None, among, SearchMode.KEYWORD).sequences.tolist() == among.tolist()


# Whatever makes words and vectors again makes the same


async def filled(folder: Path, heads: Heads = HEADS) -> None:
    """A vault with a document of several passages, a memory and a fact of several texts."""
    async with over(vault_with(folder, heads)) as stores:
        await stores.put("long", " ".join(f"word{number}" for number in range(30)))
        await stores.put("plain", metadata={})
        memory = Memory("3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11", SWAM, metadata=ANN)
        [created] = await stores.memories.create_many([CreateMemory(memory=memory)])
        assert not isinstance(created, Exception)
        await stores.put_fact("k", {"a": SWAM, "b": "It rained."}, metadata=ANN)


def state(vault: Vault) -> dict[str, Any]:
    """The vectors of every record, and which are found by their head."""
    return {
        collection.name: (
            [
                (document.doc_id, [(each.start, each.end, each.embedding) for each in document.passages])
                for _, document in sorted(records.list_documents(RecordFilter(), limit=9, vectors=True), key=str)
            ],
            found_by_word(records, "ann lake"),
        )
        for collection in (DOCUMENTS, MEMORIES, FACTS)
        for records in [vault.collection(collection)]
    }


def state_in(folder: Path) -> dict[str, Any]:
    with closing(vault_with(folder)) as vault:
        return state(vault)


def damages(folder: Path) -> list[str]:
    with RecordsVerifier(folder / "records.db", VaultKeyFile(folder)) as verifier:
        return [str(damage) for step in verifier.run() for damage in step.damages]


async def test_a_vault_keeps_its_keys_until_it_is_embedded_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path / "new")
    await filled(tmp_path / "old", Heads())
    with caplog.at_level(logging.WARNING, logger="mnemon_server"):
        async with over(vault_with(tmp_path / "old")) as stores:
            await stores.put("later")
            assert stores.vectors(DOCUMENTS, "later") == stores.made_of(SWAM)
            assert not stores.found(DOCUMENTS, "ann")
            await stores.documents.delete("later")
    assert "`mnemon-server reembed`" in caplog.text

    embedder = HashingEmbedder(64, WORDS)

    def embed(collection: Collection, documents: Sequence[Document]) -> Sequence[Sequence[PassageInput]]:
        texts = [stored_texts(collection, each, HEADS) for each in documents]
        return as_stored(collection, documents, embed_blocking(embedder, texts))

    list(reembed(VaultKeyFile(tmp_path / "old"), "m", embed, HEADS))
    assert state_in(tmp_path / "old") == state_in(tmp_path / "new")
    assert not damages(tmp_path / "old")
    caplog.clear()
    vault_with(tmp_path / "old").close()
    assert not caplog.text


async def test_a_rebuilt_file_has_the_same_words(tmp_path: Path) -> None:
    await filled(tmp_path)
    before = state_in(tmp_path)
    rebuild(tmp_path / "records.db", VaultKeyFile(tmp_path), lambda _: None, check=lambda _: None)
    assert state_in(tmp_path) == before
    assert not damages(tmp_path)
    async with over(vault_with(tmp_path)) as stores:
        await stores.documents.delete("long")
        assert not stores.found(DOCUMENTS, "ann")
    assert not damages(tmp_path)


async def test_the_shadow_model_makes_the_vectors_that_it_would_have_made(tmp_path: Path) -> None:
    await filled(tmp_path)
    embedder = HashingEmbedder(64, WORDS)

    def embed(texts: Sequence[str]) -> list[Vector]:
        return list(embedder.embed(texts))

    before = state_in(tmp_path)
    with closing(vault_with(tmp_path, models=VaultModels(embed, ShadowModel("other", embed)))) as vault:
        wait_until(vault.is_shadow_current)
    with closing(vault_with(tmp_path, models=VaultModels(embed), model="other")) as vault:
        assert state(vault) == before


@pytest.mark.parametrize("terms", [{}, {"embed_anew": True}])
async def test_an_archive_gives_the_same_words_and_vectors(tmp_path: Path, terms: dict[str, Any]) -> None:
    await filled(tmp_path / "one")
    async with over(vault_with(tmp_path / "one")) as one, over(vault_with(tmp_path / "two")) as two:
        assert one.vault.events.wait_until_warm(60.0)
        parts: list[ExportMessage] = [part async for part in one.archive.export(ExportSelection())]
        importing = two.archive.begin_import(ImportStart(header=parts[0], **terms))
        for records in parts[1:-1]:
            await importing.take(records)
        assert state(two.vault) == state(one.vault)


async def test_a_statement_is_found_by_its_author_and_compared_without(opened: Opened) -> None:
    saved = await opened.statements.save(statement(SWAM, metadata=ANN))
    assert saved.memory is not None
    assert opened.vectors(SEMANTIC, saved.memory.memory_id) == opened.made_of(SWAM)
    assert opened.found(SEMANTIC, "ann") == {saved.memory.memory_id}
    document = Document("s", SWAM, ANN)
    assert [text.whole for text in stored_texts(SEMANTIC, document, HEADS)] == [SWAM]
