"""The vector of a query, before a search occupies a thread."""

from collections.abc import Sequence

from mnemon_server.domain.records import SearchMode
from mnemon_server.embedding.batcher import EmbeddingBatcher


async def fetch_vector(
    embedder: EmbeddingBatcher,
    text: str | None,
    *,
    vector: Sequence[float] | None = None,
    mode: SearchMode | None = None,
) -> None:
    """Asks an endpoint for the vector of a query, if a search in this mode and without a `vector` needs it.

    Threads are few, and an endpoint may take long: searches by word would wait for a free one. Does nothing if the
    model runs in this process.

    Raises:
        EmbeddingUnavailableError: the endpoint failed.
        TooManyRequestsError, NotServingError: see EmbeddingBatcher.
    """
    if text and text.strip() and vector is None and mode is not SearchMode.KEYWORD:
        await embedder.fetch_query(text)
