"""Partial updates of a document: what is embedded again, what is reported, and what a repeated call returns."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document, IndexRequest, SearchQuery, SearchResult, UpdateDocument
from mnemon_server.domain.errors import InvalidArgumentError, RequestIdReusedError
from mnemon_server.domain.records import METADATA_KEYS_MAX, Scope, WriteOutcome
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import DocumentUpdate, Fits, PassageInput
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.documents.changes import DocumentChanges
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.reading.read_batcher import ReadBatcher

from tests.support.gated_embedder import GatedEmbedder
from tests.support.vaults import open_vault

NOTE = Document("note", "tea at four", {"a": 1, "b": "two"}, scope=Scope(user="ada", project="x"))


@dataclass(frozen=True)
class Opened:
    store: DocumentStore
    vault: Vault
    embedder: GatedEmbedder
    batcher: EmbeddingBatcher

    async def update(self, document: Document = NOTE, *mask: str, **fields: object) -> WriteOutcome:
        request = UpdateDocument(document=document, mask=mask, **fields)  # type: ignore[arg-type]
        return (await self.store.update(request)).outcome

    async def nearest(self, text: str) -> SearchResult:
        """The best match."""
        [found] = (await self.store.search(SearchQuery(text=text, top_k=1))).results
        return found

    async def stored(self) -> Document:
        return await self.store.get("note")


@asynccontextmanager
async def open_store(folder: Path) -> AsyncIterator[Opened]:
    embedder = GatedEmbedder()
    vault = open_vault(folder, dimension=embedder.model.dimension)
    try:
        async with (
            EmbeddingBatcher(embedder) as batcher,
            DocumentStore(vault.collection(DOCUMENTS), batcher) as store,
        ):
            await store.index(IndexRequest(document=NOTE))
            embedder.threads.clear()
            yield Opened(store, vault, embedder, batcher)
    finally:
        vault.close()
        embedder.close()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_store(tmp_path) as found:
        yield found


async def test_a_document_is_embedded_again_only_if_its_content_changes(opened: Opened) -> None:
    await opened.update(replace(NOTE, scope=Scope(user="bob")), "scope", set_metadata={"c": 1})
    await opened.update(NOTE, "content", set_metadata={"c": 2})
    assert opened.embedder.threads == set()
    await opened.update(replace(NOTE, content="coffee at five"), "content")
    assert opened.embedder.batches[-1] == ["coffee at five"]
    found = await opened.nearest("coffee at five")
    assert (found.doc_id, found.score) == ("note", pytest.approx(1, abs=1e-6))


async def test_content_that_another_write_replaced_in_the_meantime_is_embedded(opened: Opened) -> None:
    records = opened.vault.collection(DOCUMENTS)

    def read_and_be_overtaken(doc_ids: Sequence[str], *, fits: Fits) -> list[Document | None]:
        found = records.get_documents(doc_ids, fits=fits)
        overtaking = DocumentUpdate(
            doc_id="note",
            update=lambda stored: replace(stored, content="overtaken"),
            change=ChangeType.KNOWLEDGE_INDEXED,
            passages=[PassageInput(0, 9, opened.embedder.embed(["overtaken"])[0])],
        )
        records.update_document(overtaking).result()
        return found

    offload = Offload(1, "reader")
    reads = ReadBatcher(read_and_be_overtaken, offload)
    await DocumentChanges(records, opened.batcher, reads).update(UpdateDocument(document=NOTE, mask=("content",)))
    assert ((await opened.stored()).content, (await opened.stored()).revision) == (NOTE.content, 3)
    found = await opened.nearest(NOTE.content)
    assert found.score == pytest.approx(1, abs=1e-6)
    offload.close()


async def test_an_update_that_changes_nothing_is_not_in_the_log(opened: Opened) -> None:
    outcome = await opened.update(NOTE, "content", "scope", set_metadata={"a": 1}, remove_metadata=("nobody",))
    assert (outcome, (await opened.stored()).revision) == (WriteOutcome.UNCHANGED, 1)
    await opened.update(NOTE, set_metadata={"a": 2}, remove_metadata=("b",))
    events = opened.vault.changes.read(0, limit=10, where=ChangeFilter()).changes
    assert [event.type for event in events] == [ChangeType.KNOWLEDGE_INDEXED] * 2
    assert events[1].changed == ("metadata.a", "metadata.b")


async def test_a_repeated_call_gets_the_first_answer_even_after_the_document_is_deleted(opened: Opened) -> None:
    request = UpdateDocument(document=NOTE, set_metadata={"n": 1}, request_id="once")
    first = await opened.store.update(request)
    await opened.store.delete("note")
    again = await opened.store.update(request)
    assert again == replace(first, replayed=True)
    for other in (
        replace(request, set_metadata={"n": 2}),
        replace(request, set_metadata={"n": 1}, remove_metadata=("m",)),
        replace(request, mask=("scope",)),
        replace(request, expected_revision=1),
    ):
        with pytest.raises(RequestIdReusedError):
            await opened.store.update(other)


async def test_an_update_that_makes_the_metadata_too_large_is_refused(opened: Opened) -> None:
    keys = {f"k{number}": number for number in range(METADATA_KEYS_MAX - 1)}
    with pytest.raises(InvalidArgumentError, match="set_metadata: must have at most 64 keys"):
        await opened.update(NOTE, set_metadata=keys)
    await opened.update(NOTE, set_metadata=keys, remove_metadata=("a",))
    assert len((await opened.stored()).metadata) == METADATA_KEYS_MAX
