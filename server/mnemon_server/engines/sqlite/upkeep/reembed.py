"""Replaces all vectors by those of another embedding model, while no server uses the folder."""

from collections.abc import Callable, Generator, Iterator, Sequence

import apsw

from mnemon_server.domain.collections import COLLECTIONS, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.engines.sqlite import journal
from mnemon_server.engines.sqlite.documents import DocumentTable
from mnemon_server.engines.sqlite.schema import open_writer
from mnemon_server.engines.sqlite.tables import store_heads
from mnemon_server.engines.sqlite.upkeep import shadow
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.heads import NO_HEADS, Heads

BATCH_DOCUMENTS = 64

Embed = Callable[[Collection, Sequence[Document]], Sequence[Sequence[PassageInput]]]


def reembed(
    keys: VaultKeyFile, model_identity: str, embed: Embed, heads: Heads = NO_HEADS
) -> Generator[tuple[int, int]]:
    """Embeds all documents anew in one transaction, so an interruption leaves everything unchanged.

    `embed` runs the model on a collection's documents that have passages, and returns each one's passages, with
    vectors. From now on, records have these `heads`. Yields the number of finished documents and the total: first once
    the folder is locked, and last, when both are equal, after the commit.

    Raises:
        FolderInUseError: another process has locked the folder.
        ConfigurationError: there are no records, or their format is not known.
    """
    path = keys.folder / "records.db"
    if not path.exists():
        raise ConfigurationError(f"there are no records in {str(keys.folder)!r}")
    with FolderLock(keys.folder):
        connection = open_writer(path, keys)
        try:
            yield from _all(connection, model_identity, embed, heads)
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close()


def _all(connection: apsw.Connection, model_identity: str, embed: Embed, heads: Heads) -> Iterator[tuple[int, int]]:
    tables = [DocumentTable(collection) for collection in COLLECTIONS]
    stats = [journal.stats(connection, table.tables) for table in tables]
    done, total = 0, sum(each.document_count for each in stats)
    sequence = max(each.sequence for each in stats)
    yield 0, total
    with connection:
        shadow.remove(connection)
        for table in tables:
            for changed in _collection(connection, table, heads, embed, sequence):
                sequence = changed
                done += 1
                if done % BATCH_DOCUMENTS == 0 and done < total:
                    yield done, total
        connection.execute("UPDATE meta SET value = ? WHERE key = 'embedding_model'", (model_identity,))
        store_heads(connection, heads)
    yield total, total


def _collection(
    connection: apsw.Connection, table: DocumentTable, heads: Heads, embed: Embed, sequence: int
) -> Iterator[int]:
    """Embeds one collection. Yields the position of each change; positions start after `sequence`."""
    after = 0
    mark = f"UPDATE {table.tables.documents} SET sequence = ? WHERE position = ?"  # noqa: S608 - a constant
    while rows := table.select(
        connection, "d.position > ? ORDER BY d.position LIMIT ?", (after, BATCH_DOCUMENTS), vectors=False
    ):
        embedded = [row for row in rows if row[2].passages]
        new = embed(table.tables.collection, [document for _, _, document in embedded]) if embedded else []
        for (position, _, document), passages in zip(embedded, new, strict=True):
            sequence += 1
            table.replace_passages(connection, position, document, document, passages, heads)
            connection.execute(mark, (sequence, position))
            journal.set_last_sequence(connection, table.tables, sequence)
            yield sequence
        after = rows[-1][0]
