"""A document in the reference vault, and its conversion for answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.encoding import encode_metadata, scope_values
from mnemon_server.engines.promises.values import (
    EXCERPT_CHARACTERS_MAX,
    OPENING_CHARACTERS_MAX,
    DocumentChange,
    Excerpt,
    FieldsOnly,
    PassageInput,
)


@dataclass(frozen=True, slots=True)
class Stored:
    """A document with its passages, and the words of each passage."""

    position: int
    sequence: int
    document: Document
    passages: tuple[PassageInput, ...]
    passage_ids: tuple[int, ...]
    """Empty for a hidden document."""
    words: tuple[Counter[str], ...]


@dataclass(frozen=True, slots=True)
class View:
    """How much of a document an answer contains; see RecordEngine.get_documents."""

    vectors: bool
    fields_only: FieldsOnly

    def shown(self, stored: Stored) -> Document:
        """The document with the selected parts."""
        shown = stored.document
        if self.vectors:
            passages = tuple(
                replace(passage, embedding=tuple(given.vector.tolist()))
                for passage, given in zip(shown.passages, stored.passages, strict=True)
            )
            shown = replace(shown, passages=passages, embedding=passages[0].embedding if passages else None)
        if self.fields_only:
            passages = shown.passages if self.vectors else ()
            return replace(shown, content="", metadata={}, passages=passages, fields=self._fields(shown))
        return shown

    def size_of(self, stored: Stored) -> int:
        """The size of the selected texts and vectors, in bytes."""
        document = stored.document
        texts = [document.doc_id, *scope_values(document.scope)]
        for value in self._fields(document).values():
            texts += [value] if isinstance(value, str) else value if isinstance(value, tuple) else []
        if not self.fields_only:
            texts += [document.content, encode_metadata(document.metadata)]
        size = sum(len(text.encode()) for text in texts)
        return size + sum(passage.vector.nbytes for passage in stored.passages) if self.vectors else size

    def _fields(self, document: Document) -> Mapping[str, FieldValue]:
        if isinstance(self.fields_only, bool):
            return document.fields
        return {name: self._left(name, value) for name, value in document.fields.items()}

    def _left(self, name: str, value: FieldValue) -> FieldValue:
        if isinstance(self.fields_only, bool) or name in self.fields_only or not isinstance(value, str | tuple):
            return value
        return type(value)()


def excerpt(stored: Stored, passage_id: int, passage: PassageInput, metadata_keys: Sequence[str]) -> Excerpt:
    """The text of a passage, and the beginning of its document."""
    content, metadata = stored.document.content, stored.document.metadata
    wanted = {key: value for key in metadata_keys if isinstance(value := metadata.get(key), str)}
    return Excerpt(
        passage_id,
        content[passage.start : passage.end][:EXCERPT_CHARACTERS_MAX],
        content[:OPENING_CHARACTERS_MAX],
        {key: value[:OPENING_CHARACTERS_MAX] for key, value in wanted.items()},
    )


def change(stored: Stored) -> DocumentChange:
    """The document's newest change. A hidden document is reported as deleted."""
    document = stored.document
    if document.hidden:
        return DocumentChange(stored.sequence, document.doc_id, None)
    vectors = [passage.vector for passage in stored.passages]
    matrix = np.stack(vectors) if vectors else np.empty((0, 0), np.float32)
    return DocumentChange(stored.sequence, document.doc_id, document, stored.passage_ids, matrix)
