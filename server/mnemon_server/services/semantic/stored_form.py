"""Statements as stored documents, in both directions, and the write of a statement without conflicts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import EPOCH, utc
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.filters import AllOf, Condition, Operator, RecordFilter
from mnemon_server.domain.records import WriteOutcome, WriteReceipt
from mnemon_server.domain.semantic import LISTS, TEXTS, ConflictPolicy, SavedSemantic, SemanticMemory
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.engines.promises.records import DocumentReader
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, Vector
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.semantic.resolver import NewSemantic
from mnemon_server.services.semantic.terms import content_hash, spellings, terms_of


def given_statement(memory: SemanticMemory) -> SemanticMemory:
    """A statement from a caller as it is stored: without the server's fields, but with its id and its vector."""
    return SemanticMemory(
        memory_id=memory.memory_id,
        content=memory.content,
        summary=memory.summary,
        scope=memory.scope,
        importance=memory.importance,
        keywords=tuple(memory.keywords),
        source=memory.source,
        metadata=normalised_metadata(memory.metadata),
        create_time=memory.create_time and utc(memory.create_time),
        embedding=memory.embedding,
    )


def to_document(memory: SemanticMemory) -> Document:
    """The stored document of a statement whose `create_time` is known; hidden if it is superseded."""
    return Document(
        memory.memory_id,
        memory.content,
        normalised_metadata(memory.metadata),
        scope=memory.scope,
        fields={
            **{name: getattr(memory, name) for name in TEXTS},
            **{name: tuple(getattr(memory, name)) for name in LISTS},
            "importance": None if memory.importance is None else float(memory.importance),
            "terms": tuple(sorted(terms_of(memory.keywords, memory.content))),
            "time": None if memory.create_time is None else utc(memory.create_time),
            "content_hash": content_hash(memory.scope.user, memory.scope.persona, memory.content),
        },
        hidden=bool(memory.superseded_by),
    )


def to_semantic(document: Document) -> SemanticMemory:
    """The statement of a stored document, with its vector if the document has it."""
    fields = document.fields
    importance, time = fields.get("importance"), fields.get("time")
    texts: dict[str, Any] = {name: str(fields.get(name) or "") for name in TEXTS}
    lists: dict[str, Any] = {name: _texts(fields.get(name)) for name in LISTS}
    return SemanticMemory(
        memory_id=document.doc_id,
        content=document.content,
        **texts,
        **lists,
        scope=document.scope,
        importance=importance if isinstance(importance, float) else None,
        metadata=document.metadata,
        create_time=time if isinstance(time, datetime) else document.create_time,
        update_time=document.update_time or EPOCH,
        revision=document.revision,
        embedding=document.embedding,
    )


def find_duplicate(
    semantic: DocumentReader, memory: SemanticMemory, policy: ConflictPolicy = ConflictPolicy.IGNORE
) -> Document | None:
    """The visible statement with the same scope and content (see `same_content`); None if it does not exist.

    Where conflicts matter, another spelling of the same sentence is neither a conflict nor a new statement.
    """
    contents = [memory.content] if policy is ConflictPolicy.IGNORE else spellings(memory.content)
    same = RecordFilter(expression=same_content(memory, contents))
    return next((document for _, document in semantic.list_documents(same, limit=1)), None)


def same_content(memory: SemanticMemory, contents: Sequence[str]) -> AllOf:
    """The condition for statements of the same user, household and persona with one of these contents."""
    digests = tuple(content_hash(memory.scope.user, memory.scope.persona, content) for content in contents)
    # The household is not hashed, so that stored hashes stay valid; it is compared as a field.
    household = Condition("household", Operator.EQ, (memory.scope.household,))
    return AllOf((Condition("content_hash", Operator.IN, digests), household))


def save_plain(tx: VaultTransaction, new: NewSemantic) -> SavedSemantic:
    """Stores a statement without looking for conflicts, unless the same one is stored already."""
    known = find_duplicate(tx.collection(SEMANTIC), new.memory)
    if known is not None:
        return as_duplicate(known, tx.now)
    memory, receipt = put_semantic(tx, new.memory, new.vector)
    return SavedSemantic(memory=memory, receipt=receipt)


def as_duplicate(known: Document, now: datetime) -> SavedSemantic:
    """The answer to a save of a statement that is stored already."""
    receipt = WriteReceipt(known.doc_id, WriteOutcome.UNCHANGED, known.revision, now)
    return SavedSemantic(memory=to_semantic(known), receipt=receipt, duplicate=True)


def put_semantic(
    tx: VaultTransaction,
    memory: SemanticMemory,
    vector: Vector,
    *,
    change: ChangeType = ChangeType.SEMANTIC_SAVED,
    details: str = "",
) -> tuple[SemanticMemory, WriteReceipt]:
    """Stores a statement under its id, hidden if it is superseded, and returns it as stored."""
    records = tx.collection(SEMANTIC)
    memory = replace(memory, scope=records.sourced(memory.scope), create_time=memory.create_time or tx.now)
    document = to_document(memory)
    passage = PassageInput(0, len(memory.content), vector)
    write = DocumentWrite(document=document, passages=[passage], change=change, details=details)
    receipt = records.put_document(write)
    return replace(to_semantic(document), revision=receipt.revision, update_time=receipt.commit_time), receipt


def _texts(value: FieldValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
