"""Many statements, and many clients that save them concurrently."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1 import semantic_pb2 as pb

from tests.support.semantic_messages import DIMENSION, run_of, save
from tests.support.server import detail

RUN = 500
RETRY_MAX_S = 0.2

Found = list[list[tuple[str, float]]]
"""Of each search, the ids that it found with their similarity."""


async def load(semantic: Any, count: int, users: int) -> None:
    """Saves this many statements in turn for this many users, with vectors in random directions."""
    rng = np.random.default_rng(4)

    def messages() -> Iterator[pb.BulkSaveSemanticMemoriesRequest]:
        for start in range(0, count, RUN):
            vectors = rng.standard_normal((min(count - start, RUN), DIMENSION), np.float32)
            yield run_of(
                *(
                    save(f"fact {i}", user=f"user {i % users}", embedding=vector)
                    for i, vector in enumerate(vectors, start)
                )
            )

    saved = 0
    async for response in semantic.BulkSaveSemanticMemories(messages()):
        assert {result.WhichOneof("outcome") for result in response.results} == {"saved"}
        saved += len(response.results)
    assert saved == count


async def answers(semantic: Any, users: int) -> Found:
    """The results of some searches, every other one limited to a user."""
    found = []
    for turn, vector in enumerate(np.random.default_rng(5).standard_normal((20, DIMENSION), np.float32)):
        scope = {"user": f"user {turn % users}"} if turn % 2 else {}
        request = pb.SearchSimilarRequest(
            vector=vector, filter=pb.SemanticMemoryFilter(scope=scope), limit=10, min_score=0.0
        )
        answer = await semantic.SearchSimilar(request)
        found.append([(match.memory.memory_id, round(match.score.relevance, 5)) for match in answer.results])
    assert all(len(results) == 10 for results in found)
    return found


def agreement(before: Found, after: Found) -> float:
    """The fraction of the earlier results that is found again."""
    pairs = [(set(old), set(new)) for old, new in zip(before, after, strict=True)]
    return sum(len(old & new) for old, new in pairs) / sum(len(old) for old, _ in pairs)


class Overload:
    """Clients that save one statement after the other, and soon retry refused ones."""

    def __init__(self, semantic: Any) -> None:
        self._semantic = semantic
        self._stopping = False
        self.saved = 0
        """Statements that were acknowledged."""
        self.refusals: list[aio.AioRpcError] = []

    @asynccontextmanager
    async def of(self, clients: int) -> AsyncIterator[None]:
        """This many clients, working until the block ends."""
        tasks: Sequence[asyncio.Task[None]] = [asyncio.create_task(self._work(number)) for number in range(clients)]
        try:
            yield
        finally:
            self._stopping = True
            await asyncio.gather(*tasks)

    async def _work(self, client: int) -> None:
        turn = 0
        while not self._stopping:
            turn += 1
            try:
                await self._semantic.SaveSemanticMemory(save(f"fact {turn}", user=f"user {client}"))
            except aio.AioRpcError as error:
                self.refusals.append(error)
                retry = detail(error, error_details_pb2.RetryInfo).retry_delay
                await asyncio.sleep(min(retry.ToNanoseconds() / 1e9, RETRY_MAX_S))
            else:
                self.saved += 1
