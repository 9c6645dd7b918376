"""The statements that calls about conflicts name: read by their ids, or given in the call and checked."""

from collections.abc import Iterable

from mnemon_server.domain.errors import (
    FieldViolation,
    MemoryNotFoundError,
    RevisionMismatchError,
)
from mnemon_server.domain.semantic import MemoryRef, SemanticMemory
from mnemon_server.domain.validation import doc_id_violations, revision_violations
from mnemon_server.engines.promises.records import DocumentReader
from mnemon_server.services.semantic.checks import statement_violations
from mnemon_server.services.semantic.stored_form import to_semantic
from mnemon_server.services.writing.writes import vector_violations


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
