"""The statements that calls about conflicts name: read by their ids, or given in the call and checked."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.clock import Clock
from mnemon_server.domain.errors import (
    FieldViolation,
    MemoryNotFoundError,
    MnemonError,
    RevisionMismatchError,
)
from mnemon_server.domain.semantic import MemoryRef, SemanticMemory
from mnemon_server.domain.validation import doc_id_violations, revision_violations
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.semantic.checks import statement_violations
from mnemon_server.services.semantic.stored_form import DocumentReader, given_statement, to_semantic
from mnemon_server.services.semantic.vectors import vectors_of
from mnemon_server.services.writing.writes import vector_violations


class Statements:
    """Finds the statements that calls name, and embeds those without a vector."""

    def __init__(
        self,
        records: RecordEngine,
        embedder: EmbeddingBatcher,
        *,
        clock: Clock,
        offload: Offload,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        """The records are those within the bounds of the caller."""
        self._records = records
        self._bounds = bounds
        self._embedder = embedder
        self._clock = clock
        self._offload = offload

    async def find(self, reference: MemoryRef) -> SemanticMemory:
        """The statement: a stored one with its vector, or a given one as a save would store it now.

        Raises MemoryNotFoundError or RevisionMismatchError for a stored one, PermissionDeniedError for a given one.
        """
        if reference.memory is None:
            return await self._offload(find_statement, self._records, reference.memory_id, reference.expected_revision)
        memory = self.owned(given_statement(reference.memory))
        return replace(memory, create_time=memory.create_time or self._clock())

    def owned(self, memory: SemanticMemory) -> SemanticMemory:
        """A given statement as its save would own it. PermissionDeniedError if it would be another user's."""
        return replace(memory, scope=self._bounds.owned(memory.scope)) if self._bounds else memory

    async def embedded(self, memories: Sequence[SemanticMemory]) -> list[SemanticMemory]:
        """The statements with their vectors, of unit length. Raises the errors of EmbeddingBatcher."""
        given = [memory.embedding for memory in memories]
        vectors = await vectors_of(self._embedder, [memory.content for memory in memories], given)
        for vector in vectors:
            if isinstance(vector, MnemonError):
                raise vector
        return [
            replace(memory, embedding=tuple(vector.tolist()))
            for memory, vector in zip(memories, vectors, strict=True)
            if not isinstance(vector, MnemonError)
        ]


def find_statement(records: DocumentReader, memory_id: str, expected_revision: int | None = None) -> SemanticMemory:
    """A stored statement with its vector, superseded or not.

    Raises:
        MemoryNotFoundError: it does not exist.
        RevisionMismatchError: it does not have the expected revision.
    """
    [document] = records.get_documents([memory_id], vectors=True)
    if document is None:
        raise MemoryNotFoundError(memory_id, noun="statement")
    if expected_revision not in (None, document.revision):
        raise RevisionMismatchError(memory_id, expected_revision, document.revision)
    return to_semantic(document)


def reference_violations(reference: MemoryRef, field: str, dimension: int) -> Iterable[FieldViolation]:
    """Violations in a reference to a statement."""
    if reference.memory is None:
        yield from doc_id_violations(reference.memory_id, f"{field}.memory_id")
        yield from revision_violations(reference.expected_revision, f"{field}.expected_revision")
    elif reference.memory_id:
        yield FieldViolation(field, "must be an id or a statement, not both")
    elif reference.expected_revision is not None:
        yield FieldViolation(f"{field}.expected_revision", "must be set only with the id of a stored statement")
    else:
        yield from statement_violations(reference.memory, f"{field}.memory")
        yield from vector_violations(reference.memory.embedding, dimension, f"{field}.memory.embedding")


def pair_violations(first: MemoryRef, second: MemoryRef) -> Iterable[FieldViolation]:
    """Violations in merging the statements that these two name."""
    if (first.memory is None) != (second.memory is None):
        yield FieldViolation("second", "must be an id if the first is one, and a given statement otherwise")
    elif first.memory is None and first.memory_id == second.memory_id:
        yield FieldViolation("second.memory_id", "must differ from the id of the first")
