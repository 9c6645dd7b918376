"""Pages of documents: as long as was asked for, or until they hold so much text that a message is full."""

from collections.abc import Callable

from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.base import RecordEngine

PAGE_STEP = 50
PAGE_BYTES_MAX = 3 << 20
"""A page ends with the document that reaches it; with a last one of 1 MiB, that makes 4 MiB."""


def content_bytes(document: Document) -> int:
    """The bytes of a document's text."""
    return len(document.content.encode())


def read_page(
    records: RecordEngine,
    where: RecordFilter,
    *,
    after: int,
    limit: int,
    vectors: bool = False,
    descending: bool = False,
    size_of: Callable[[Document], int] = content_bytes,
) -> tuple[list[Document], int | None]:
    """Documents that match, from behind position `after`, and the position of the last; None where none is left.

    `descending`: the last one of the order of first indexing comes first; then 0 begins with it.
    """
    documents: list[Document] = []
    size = 0
    while True:
        # A step holds little, whatever the size of the documents is.
        step = min(PAGE_STEP, limit - len(documents))
        rows = records.list_documents(where, after=after, limit=step, vectors=vectors, descending=descending)
        for position, document in rows:
            documents.append(document)
            after = position
            size += size_of(document)
            if size >= PAGE_BYTES_MAX or len(documents) == limit:
                return documents, after
        if len(rows) < step:
            return documents, None
