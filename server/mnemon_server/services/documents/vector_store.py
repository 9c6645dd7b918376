"""The vector store: texts that are found by meaning, behind a protocol of plain calls that block.

`VectorStore` is what code depends on; `RecordVectorStore` keeps it over the records of a vault, which hold the truth,
and, if there is one, a vector index that follows them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.documents import QUERY_BYTES_MAX, Document
from mnemon_server.domain.errors import BackendConnectionError, DocumentNotFoundError, FieldViolation, MnemonError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import (
    FilterValue,
    MetadataValue,
    SearchMode,
    WriteOutcome,
    filter_value_problem,
    metadata_key_problem,
)
from mnemon_server.domain.validation import (
    doc_id_violations,
    document_violations,
    metadata_violations,
    normalised,
    refuse,
    text_violations,
    type_violations,
)
from mnemon_server.embedding.base import Embedder
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite
from mnemon_server.services.documents.stored_texts import Neighbour, StoredText
from mnemon_server.services.search.embedded_passages import TextMovedError, embed_blocking, placed
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.index_pulse import PATIENCE_S
from mnemon_server.services.search.passage_queries import PassageHit, PassageQuery
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import DEFAULT_SEARCH, SearchSettings

N_RESULTS_DEFAULT = 10
HEARTBEAT_PATIENCE_S = 10.0
"""How long a heartbeat waits for an index that is being opened for the first time."""

log = logging.getLogger(__name__)


@runtime_checkable
class VectorStore(Protocol):
    """Texts with metadata, found by meaning. Any thread may call any method; all block.

    Arguments that are wrong raise InvalidArgumentError, which names them. The parameters are as narrow as can be, so
    that a class may take more: metadata as any mapping, a default `n_results`.
    """

    def store(self, id: str, content: str, metadata: dict[str, Any]) -> None:  # noqa: A002
        """Stores a text, which completely replaces the one with its id: no key of the old metadata survives."""

    def get(self, id: str) -> StoredText | None:  # noqa: A002
        """The text with this id, or None."""

    def search(self, query: str, n_results: int, where: dict[str, Any] | None = None) -> Sequence[Neighbour]:
        """Up to `n_results` texts most similar to the query, nearest first, among those that match.

        A text with a similarity of 0 is not found, and a blank query finds nothing. `where` holds values that the
        metadata must equal, all of them. Numbers are compared by value: 5 finds 5.0.
        """

    def delete(self, id: str) -> bool | None:  # noqa: A002
        """Removes a text for good; may return False if there was no such text."""

    def update_metadata(self, id: str, metadata: dict[str, Any]) -> None:  # noqa: A002
        """Sets these keys, and leaves the others and the content as they are. NotFoundError if there is no text."""

    def count(self) -> int:
        """How many texts there are."""

    def heartbeat(self) -> bool:
        """Whether the backend can be reached. Never raises."""


class RecordVectorStore:
    """A vector store over one collection of a vault. `close` closes the index, but not the records and the embedder."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: Embedder,
        *,
        applier: IndexApplier | None = None,
        search: SearchSettings = DEFAULT_SEARCH,
    ) -> None:
        """Takes over the applier, which feeds the vector index, if there is one."""
        self._records = records
        self._embedder = embedder
        self._applier = applier
        self._passages = PassageSearch(
            records, lambda text: embedder.embed([embedder.model.as_query(text)])[0], applier=applier, settings=search
        )

    def store(self, id: str, content: str, metadata: Mapping[str, MetadataValue] | None = None) -> None:  # noqa: A002
        """See VectorStore."""
        given = {} if metadata is None else metadata
        refuse([*type_violations({"id": id, "content": content}, str), *type_violations({"metadata": given}, Mapping)])
        document = Document(id, content, given)
        refuse(_document_violations(document))
        [passages] = embed_blocking(self._embedder, [placed(document, self._records.heads)])
        self._records.put_document(DocumentWrite(document=normalised(document), passages=passages)).result()

    def get(self, id: str) -> StoredText | None:  # noqa: A002
        """See VectorStore."""
        _check_id(id)
        [document] = self._records.get_documents([id])
        if document is None or document.hidden:
            return None
        return StoredText(document.doc_id, document.content, document.metadata)

    def search(
        self, query: str, n_results: int = N_RESULTS_DEFAULT, where: Mapping[str, FilterValue] | None = None
    ) -> list[Neighbour]:
        """See VectorStore."""
        given = {} if where is None else where
        refuse([*type_violations({"query": query}, str), *type_violations({"n_results": n_results}, int)])
        refuse(type_violations({"where": given}, Mapping))
        refuse([*_search_violations(query, n_results), *_where_violations(given)])
        if not query.strip():
            return []
        found = self._passages.find(
            PassageQuery(text=query, where=RecordFilter(dict(given)), mode=SearchMode.VECTOR, limit=n_results)
        )
        return [_neighbour(hit) for hit in found.hits]

    def delete(self, id: str) -> bool:  # noqa: A002
        """See VectorStore."""
        _check_id(id)
        return self._records.delete_document(id).result().outcome is WriteOutcome.DELETED

    def update_metadata(self, id: str, metadata: Mapping[str, MetadataValue]) -> None:  # noqa: A002
        """See VectorStore."""
        _check_id(id)
        refuse(type_violations({"metadata": metadata}, Mapping))
        refuse(metadata_violations(metadata, "metadata"))

        outcome = None
        while outcome is None:
            with suppress(TextMovedError):
                outcome = self._update_metadata(id, metadata)
        if outcome is WriteOutcome.MISSING:
            raise DocumentNotFoundError(id)

    def _update_metadata(self, doc_id: str, metadata: Mapping[str, MetadataValue]) -> WriteOutcome:
        heads = self._records.heads

        def changed(stored: Document) -> Document:
            return normalised(replace(stored, metadata={**stored.metadata, **metadata}))

        [known] = self._records.get_documents([doc_id])
        text = None if known is None else placed(changed(known), heads)
        is_same = known is None or text == placed(known, heads)
        passages = None if is_same or text is None else embed_blocking(self._embedder, [text])[0]

        def update(stored: Document) -> Document:
            merged = changed(stored)
            if placed(merged, heads) != (placed(stored, heads) if passages is None else text):
                raise TextMovedError
            refuse(metadata_violations(merged.metadata, "metadata"))
            return merged

        change = DocumentUpdate(doc_id=doc_id, update=update, change=ChangeType.KNOWLEDGE_INDEXED, passages=passages)
        return self._records.update_document(change).result().outcome

    def count(self) -> int:
        """See VectorStore."""
        return self._records.count_documents(RecordFilter())

    def heartbeat(self) -> bool:
        """See VectorStore."""
        try:
            if self._records.failure():
                self._records.recover()
            if self._applier is not None:
                _reach(self._applier)
        except (MnemonError, TimeoutError, CancelledError) as error:
            log.warning("the vector store cannot be reached: %s", error)
            return False
        except Exception:
            log.exception("the heartbeat failed")
            return False
        return True

    def close(self) -> None:
        """Waits for what has begun, and closes the index; what was stored stays."""
        self._passages.close()
        if self._applier is not None:
            self._applier.close()


def _reach(applier: IndexApplier) -> None:
    """Returns once the index has answered and is open; raises if it cannot be reached."""
    if problem := applier.pulse.problem_within(PATIENCE_S):
        raise BackendConnectionError(problem)
    applier.applied(0).result(HEARTBEAT_PATIENCE_S)


def _neighbour(hit: PassageHit) -> Neighbour:
    cosine = hit.cosine if hit.cosine is not None else 0.0
    document = hit.document
    return Neighbour(document.doc_id, document.content, document.metadata, 1.0 - cosine, min(max(cosine, 0.0), 1.0))


def _check_id(text_id: str) -> None:
    refuse(type_violations({"id": text_id}, str))
    refuse(doc_id_violations(text_id, "id"))


def _document_violations(document: Document) -> Iterable[FieldViolation]:
    for violation in document_violations(document, "text"):
        field = violation.field.removeprefix("text.")
        yield FieldViolation("id" if field == "doc_id" else field, violation.description)


def _search_violations(query: str, n_results: int) -> Iterable[FieldViolation]:
    yield from text_violations(query, "query", QUERY_BYTES_MAX)
    if n_results < 1:
        yield FieldViolation("n_results", "must be at least 1")


def _where_violations(where: Mapping[Any, Any]) -> Iterable[FieldViolation]:
    for key, value in where.items():
        if problem := metadata_key_problem(key) or filter_value_problem(value):
            yield FieldViolation(f"where.{str(key)[:80]}", problem)
