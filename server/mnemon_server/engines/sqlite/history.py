"""Keeps earlier versions of documents, in the transaction that changes or removes them."""

from uuid import uuid4

import apsw

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.collections import VERSIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.history import Author, Ending, HistorySettings, Version, version_document
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.engines.sqlite import history_gaps
from mnemon_server.engines.sqlite.document_writes import DocumentWrites, Effects
from mnemon_server.engines.sqlite.documents import DocumentTable, Found
from mnemon_server.engines.sqlite.journal import Journal
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

_OF_RECORD = f"SELECT id FROM {Tables(VERSIONS).documents} WHERE record_id = ? AND kind = ?"
_NEWEST_FIRST = f"{_OF_RECORD} ORDER BY until DESC, position DESC LIMIT -1 OFFSET ?"


class History:
    """Keeps the earlier versions of a collection's documents. `effects` are those on VERSIONS."""

    def __init__(
        self, table: DocumentTable, writes: DocumentWrites, journal: Journal, settings: HistorySettings
    ) -> None:
        """`table` stores the collection, `writes` write to VERSIONS."""
        self._table, self._writes, self._journal, self._settings = table, writes, journal, settings
        self._kind = table.tables.collection.name

    def keep(
        self,
        connection: apsw.Connection,
        effects: Effects,
        found: Found,
        old: Document,
        *,
        ending: Ending,
        author: Author,
    ) -> None:
        """Keeps a document that is about to be changed or removed."""
        if not self._settings:
            return
        now, position = effects.operation.now, found.position
        version = Version(str(uuid4()), old, from_microseconds(now), ending, author, position)
        document = version_document(version, self._kind)
        passages = self._table.stored_passages(connection, position)
        write = DocumentWrite(document=document, passages=passages, change=None)
        self._writes.create(connection, effects, [(write, document_digest(document))])
        self._remove(connection, effects, old.doc_id, self._settings.versions_max)

    def purge(self, connection: apsw.Connection, effects: Effects, old: Document) -> None:
        """Removes all versions of a document that is about to be removed for good."""
        history_gaps.note_record(connection, self._journal.origin, self._kind, old, effects.operation.now)
        self._remove(connection, effects, old.doc_id, 0)

    def _remove(self, connection: apsw.Connection, effects: Effects, doc_id: str, kept: int) -> None:
        """Removes all but the newest versions of a document."""
        for (version_id,) in fetch(connection, _NEWEST_FIRST, (doc_id, self._kind, kept)):
            self._writes.delete(connection, effects, version_id, None)
