"""From one embedding model to the next: every document gets the vectors of the configured one."""

import contextlib
from collections.abc import Iterator, Sequence

from mnemon_server.app import open_configured_embedder
from mnemon_server.assembly.records import vault_folder
from mnemon_server.config.settings import Settings
from mnemon_server.domain.collections import SEMANTIC, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.embedding.base import Embedder
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.engines.sqlite.upkeep.reembed import reembed
from mnemon_server.services.semantic.vectors import mean_vector


def reembed_documents(settings: Settings) -> Iterator[tuple[int, int]]:
    """Embeds all documents anew, while no server runs on the folder. All of it happens, or nothing.

    An embedded vector index is built anew at the server's next start. A collection on a Chroma server stays as it is,
    for it may have other users: configure another name for the new model's.

    Yields:
        How many documents are done, and how many there are.

    Raises:
        ConfigurationError: nothing is stored, or a server runs on the folder.
        EmbeddingError: the model cannot be had.
    """
    if settings.knowledge_store_backend == "in_memory":
        raise ConfigurationError("the backend in_memory keeps nothing that could be embedded anew")
    with contextlib.closing(open_configured_embedder(settings, lambda _: None)) as embedder:

        def embed(collection: Collection, documents: Sequence[Document]) -> list[list[PassageInput]]:
            passages = _passages(embedder, documents)
            return _one_each(documents, passages) if collection is SEMANTIC else passages

        yield from reembed(vault_folder(settings), embedder.model.identity, embed)


def _one_each(documents: Sequence[Document], passages: Sequence[Sequence[PassageInput]]) -> list[list[PassageInput]]:
    """A statement has one vector, however long it is."""
    return [
        [PassageInput(0, len(document.content), mean_vector([part.vector for part in parts]))]
        for document, parts in zip(documents, passages, strict=True)
    ]


def _passages(embedder: Embedder, documents: Sequence[Document]) -> list[list[PassageInput]]:
    spans = [embedder.split(document.content) for document in documents]
    texts = [
        document.content[span.start : span.end]
        for document, parts in zip(documents, spans, strict=True)
        for span in parts
    ]
    vectors = iter(embedder.embed(texts))
    return [[PassageInput(span.start, span.end, next(vectors)) for span in parts] for parts in spans]
