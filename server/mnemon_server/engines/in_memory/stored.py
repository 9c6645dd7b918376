"""A document as the reference vault holds it, and how it is shown."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from mnemon_server.domain.documents import Document
from mnemon_server.engines.base import DocumentChange, PassageInput


@dataclass(frozen=True, slots=True)
class Stored:
    """A document with its passages, and the words of each."""

    position: int
    sequence: int
    document: Document
    passages: tuple[PassageInput, ...]
    passage_ids: tuple[int, ...]
    """None of a hidden document."""
    words: tuple[Counter[str], ...]


def shown(stored: Stored, *, vectors: bool) -> Document:
    """The document, with its vectors where they are asked for."""
    if not vectors:
        return stored.document
    passages = tuple(
        replace(passage, embedding=tuple(given.vector.tolist()))
        for passage, given in zip(stored.document.passages, stored.passages, strict=True)
    )
    return replace(stored.document, passages=passages, embedding=passages[0].embedding if passages else None)


def change(stored: Stored) -> DocumentChange:
    """The document's newest change; what is hidden counts as gone."""
    document = stored.document
    if document.hidden:
        return DocumentChange(stored.sequence, document.doc_id, None)
    vectors = [passage.vector for passage in stored.passages]
    matrix = np.stack(vectors) if vectors else np.empty((0, 0), np.float32)
    return DocumentChange(stored.sequence, document.doc_id, document, stored.passage_ids, matrix)
