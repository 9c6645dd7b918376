"""The vectors of another embedding model, beside those that a vault uses: computed in the background, and exchanged in
one transaction when the vault is opened with that model.

Each collection gets a second table of passages, with the same ids. Ids only grow, and passages are added in their
order, so those above the greatest id in that table are what is missing. A trigger removes a passage from both tables in
one transaction. The vault never reads the second table, so vectors of two models are never compared.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import apsw
import numpy as np

from mnemon_server.domain.collections import COLLECTIONS, SEMANTIC, VERSIONS
from mnemon_server.domain.errors import EmbeddingModelMismatchError
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.documents import VECTOR_TYPE
from mnemon_server.engines.sqlite.query import fetch, stored_meta
from mnemon_server.engines.sqlite.tables import Tables, passage_statements, passage_text, stored_heads
from mnemon_server.ranking.heads import NO_HEADS

# ruff: noqa: S608 - table and column names are constants; all input is bound

MODEL, SHADOW_MODEL = "embedding_model", "shadow_model"
"""The keys in `meta` with the identities of the models."""
STEP_PASSAGES = 32
MISSING_MAX = 1_000
"""So many passages may still be embedded while a vault is opened."""

EmbedTexts = Callable[[Sequence[str]], Sequence[Vector]]
"""Returns a vector of unit length for each text."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShadowModel:
    """The other model."""

    identity: str
    embed: EmbedTexts


@dataclass(frozen=True, slots=True)
class VaultModels:
    """The models that embed the passages of vaults."""

    embed: EmbedTexts | None = None
    """The vault's own model: for passages that are missing when its shadow model becomes its own."""
    shadow: ShadowModel | None = None


NO_SECOND_MODEL = VaultModels()


@dataclass(frozen=True, slots=True)
class ShadowProgress:
    """How many passages have a vector of the other model."""

    model: str
    done: int
    total: int

    @property
    def is_complete(self) -> bool:
        """Whether every passage has one."""
        return self.done >= self.total


class ShadowTable:
    """The second table of one collection. Every method works within the caller's transaction."""

    def __init__(self, tables: Tables) -> None:
        self._documents, self._passages = tables.documents, tables.passages
        self._blocks = tables.vector_blocks
        # Versions are embedded in the same way as their records.
        of_versions = f"kind <> '{SEMANTIC.name}'"
        self._has_heads = of_versions if tables.collection == VERSIONS else str(int(tables.collection.heads_embedded))
        self.name = f"{tables.passages}_shadow"
        self._trigger = f"{self.name}_delete"

    def create(self, connection: apsw.Connection) -> None:
        """Creates it empty."""
        # The index of a table that was exchanged keeps its name.
        index = f"{self._passages}_position"
        taken = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = ?", (index,)).get
        for statement in passage_statements(self._documents, self.name, f"{self.name}_position" if taken else index):
            connection.execute(statement)
        self._create_trigger(connection)

    def drop(self, connection: apsw.Connection) -> None:
        """Removes it."""
        connection.execute(f"DROP TRIGGER IF EXISTS {self._trigger}")
        connection.execute(f"DROP TABLE IF EXISTS {self.name}")

    def exchange(self, connection: apsw.Connection) -> None:
        """Swaps both tables."""
        connection.execute(f"DROP TRIGGER {self._trigger}")
        spare = f"{self.name}_spare"
        for before, after in ((self._passages, spare), (self.name, self._passages), (spare, self.name)):
            connection.execute(f"ALTER TABLE {before} RENAME TO {after}")
        self._create_trigger(connection)
        # Ids are never reused, even if a passage was removed before it was in both tables.
        newest = connection.execute(
            "SELECT max(seq) FROM sqlite_sequence WHERE name IN (?, ?)", (self._passages, self.name)
        ).get
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (self._passages,))
        connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (self._passages, newest or 0))
        connection.execute(f"DELETE FROM {self._blocks}")

    def counts(self, connection: apsw.Connection) -> tuple[int, int]:
        """How many passages are in it, and how many there are."""
        statement = f"SELECT (SELECT count(*) FROM {self.name}), (SELECT count(*) FROM {self._passages})"
        [(done, total)] = fetch(connection, statement)
        return done, total

    def missing(self, connection: apsw.Connection) -> dict[int, str]:
        """The texts of the next passages that are not in it, by ascending id; a few at once."""
        statement = (
            f"SELECT position, id, start, stop FROM {self._passages}"
            f" WHERE id > (SELECT coalesce(max(id), 0) FROM {self.name}) ORDER BY id LIMIT ?"
        )
        texts, stored = dict[int, str](), stored_heads(connection)
        for position, group in groupby(fetch(connection, statement, (STEP_PASSAGES,)), itemgetter(0)):
            statement = f"SELECT content, metadata, {self._has_heads} FROM {self._documents} WHERE position = ?"
            [(content, metadata, has_heads)] = fetch(connection, statement, (position,))
            heads = stored if has_heads else NO_HEADS
            for _, passage_id, start, stop in group:
                texts[passage_id] = passage_text(heads, content, metadata, start, stop)
        return texts

    def add(self, connection: apsw.Connection, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Adds the vectors of passages by ascending id, except for passages that have been removed since."""
        connection.executemany(
            f"INSERT INTO {self.name} (id, position, ordinal, start, stop, vector)"
            f" SELECT id, position, ordinal, start, stop, ?2 FROM {self._passages} WHERE id = ?1",
            vectors,
        )

    def _create_trigger(self, connection: apsw.Connection) -> None:
        connection.execute(
            f"CREATE TRIGGER {self._trigger} AFTER DELETE ON {self._passages}"
            f" BEGIN DELETE FROM {self.name} WHERE id = old.id; END"
        )


SHADOWS = tuple(ShadowTable(Tables(collection)) for collection in COLLECTIONS)


def embedded(texts: dict[int, str], embed: EmbedTexts) -> list[tuple[int, bytes]]:
    """The rows for `ShadowTable.add`."""
    vectors = embed([*texts.values()])
    return [
        (passage_id, np.asarray(vector).astype(VECTOR_TYPE).tobytes())
        for passage_id, vector in zip(texts, vectors, strict=True)
    ]


def progress_of(connection: apsw.Connection) -> ShadowProgress | None:
    """The progress of the other model; None if the vault has only one model."""
    model = stored_meta(connection, SHADOW_MODEL)
    if model is None:
        return None
    counts = [shadow.counts(connection) for shadow in SHADOWS]
    return ShadowProgress(model, sum(done for done, _ in counts), sum(total for _, total in counts))


def prepare(connection: apsw.Connection, identity: str) -> None:
    """Creates the tables for the model with this identity, after removing another model's."""
    if stored_meta(connection, SHADOW_MODEL) == identity:
        return
    with connection:
        remove(connection)
        for shadow in SHADOWS:
            shadow.create(connection)
        connection.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (SHADOW_MODEL, identity))


def remove(connection: apsw.Connection) -> None:
    """Removes the vectors of the other model, if there are any, within the caller's transaction."""
    for shadow in SHADOWS:
        shadow.drop(connection)
    connection.execute("DELETE FROM meta WHERE key = ?", (SHADOW_MODEL,))


def exchange(connection: apsw.Connection, model: ShadowModel) -> None:
    """Swaps the vault's model and the other one, in one transaction, after embedding the passages that are missing.

    Raises:
        EmbeddingModelMismatchError: too many passages are missing.
        EmbeddingError: the model failed.
    """
    progress = progress_of(connection)
    if progress is not None and progress.total - progress.done > MISSING_MAX:
        raise EmbeddingModelMismatchError(
            f"only {progress.done:,} of {progress.total:,} passages have a vector of {progress.model}: start the "
            f"server with its embedding model {stored_meta(connection, MODEL)} and with this one as "
            "embedding_shadow_model, until `mnemon-server shadow status` says that none is missing"
        )
    for shadow in SHADOWS:
        while texts := shadow.missing(connection):
            with connection:
                shadow.add(connection, embedded(texts, model.embed))
    former = stored_meta(connection, MODEL)
    with connection:
        for shadow in SHADOWS:
            shadow.exchange(connection)
        for key, identity in ((MODEL, model.identity), (SHADOW_MODEL, former)):
            connection.execute("UPDATE meta SET value = ? WHERE key = ?", (identity, key))
        # Vector databases are refilled.
        connection.execute("UPDATE index_position SET sequence = 0, generation = ''")
    log.info("the vault now uses the vectors of %s, and keeps the vectors of %s", model.identity, former)


def is_shadow(connection: apsw.Connection, identity: str) -> bool:
    """Whether the other model is this one."""
    return bool(stored_meta(connection, SHADOW_MODEL) == identity)


def embed_missing(connections: Connections, embed: EmbedTexts, is_stopped: Callable[[], bool]) -> None:
    """Embeds the missing passages, a few at a time. Returns once nothing is missing, or when it is stopped."""
    for shadow in SHADOWS:
        while not is_stopped():
            with connections.lend() as connection:
                texts = shadow.missing(connection)
            if not texts:
                break
            connections.submit(partial(shadow.add, vectors=embedded(texts, embed))).result()
