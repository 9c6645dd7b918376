"""An embedder that a test can hold in the middle of its work."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import Span, Vectors
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder

DEADLINE_S = 60


class GatedEmbedder(HashingEmbedder):
    """The hashing embedder with a gate in front. It records its batches and fails on the word `poison`.

    Texts that begin with `free` pass even while the gate is closed.
    """

    def __init__(self, parallelism: int = 1) -> None:
        super().__init__()
        self.parallelism = parallelism
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        if not all(text.startswith("free") for text in texts) and not self.gate.wait(DEADLINE_S):
            raise TimeoutError("nobody opened the gate")
        if any("poison" in text for text in texts):
            raise EmbeddingError("the model choked")
        return super().embed(texts)

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        self.threads.add(threading.get_ident())
        if any("indigestible" in text for text in texts):
            raise EmbeddingError("the tokenizer choked")
        return super().token_counts(texts)

    def split(self, text: str) -> list[Span]:
        self.threads.add(threading.get_ident())
        return super().split(text)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  a thread makes it true, and no event tells of it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def occupied(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> AsyncIterator[asyncio.Task[Vectors]]:
    """The model is busy with one urgent text until the block ends."""
    embedder.gate.clear()
    task = asyncio.create_task(batcher.embed(["occupied"], urgent=True))
    await until(lambda: embedder.batches[-1:] == [["occupied"]])
    try:
        yield task
    finally:
        embedder.gate.set()
    await asyncio.wait([task])
