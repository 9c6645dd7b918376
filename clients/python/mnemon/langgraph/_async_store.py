"""LangGraph's store on an `AsyncClient`."""

import asyncio
from collections.abc import Iterable
from operator import methodcaller
from typing import Any

from langgraph.store.base import IndexConfig, Op, Result, SearchOp, TTLConfig
from langgraph.store.base.batch import AsyncBatchedBaseStore

from mnemon._async.client import AsyncClient
from mnemon.langgraph._batches import Batch, Gets, IndexFields, Listing, index_of, raise_first_error, ttl_of
from mnemon.langgraph._searching import Call, search_steps, take_async

CALLS_MAX = 32
"""Calls of a store in flight at the same time. The others wait here, because the client would count their wait against
their deadlines, and would not limit the streams of puts."""


class AsyncMnemonStore(AsyncBatchedBaseStore):
    """Like `MnemonStore`, for asyncio.

        async with AsyncClient("127.0.0.1:50051") as client:
            store = AsyncMnemonStore(client)
            graph = builder.compile(store=store)

    Create it inside the event loop of its client. Operations of one turn of the loop run as one batch, as in
    LangGraph's other asynchronous stores: reads before writes, repeated reads once, and an error is raised for every
    operation of the batch. Call the blocking methods only in other threads.
    """

    supports_ttl = True

    def __init__(
        self, client: AsyncClient, *, index: IndexFields | IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        """Makes no call. Warns about an embedder, which is not used. Raises TypeError for a Client."""
        # The base class reads its task even if it was never created.
        self._task = None
        if not isinstance(client, AsyncClient):
            raise TypeError(f"an AsyncMnemonStore takes a mnemon.AsyncClient, not {type(client).__name__}")
        self._index = index_of(index)
        super().__init__()
        self._in_flight = asyncio.Semaphore(CALLS_MAX)
        self.client = client
        self.ttl_config = ttl_of(ttl)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations, reads before writes, and returns results in order. The last write of an item wins."""
        batch = Batch.of(ops, self._index)
        results = list(batch.blank)
        reads = (
            *(self._get(gets, results) for gets in batch.gets),
            *(self._find(position, op, results) for position, op in batch.searches),
            *(self._list(listing, results) for listing in batch.listings),
        )
        await asyncio.gather(*reads)
        deletes = (methodcaller("delete", *name, allow_missing=True) for name in batch.deletes)
        await asyncio.gather(self._put(batch), *map(self._call, deletes))
        return results

    async def _get(self, gets: Gets, results: list[Result]) -> None:
        facts = await self._call(methodcaller("get_many", gets.positions))
        if names := gets.renewals(facts):
            await self._call(methodcaller("renew", names))
        for position, item in gets.results(facts):
            results[position] = item

    async def _find(self, position: int, op: SearchOp, results: list[Result]) -> None:
        results[position] = await take_async(search_steps(op), self._call)

    async def _call(self, call: Call) -> Any:
        """Makes a call when few enough are in flight."""
        async with self._in_flight:
            return await call(self.client.facts)

    async def _list(self, listing: Listing, results: list[Result]) -> None:
        found: list[tuple[str, ...]] = []
        if listing.last > 0:
            async with self._in_flight:
                async for namespace in self.client.facts.list_namespaces(**listing.arguments):
                    found.append(namespace)
                    if len(found) >= listing.last:
                        break
        results[listing.position] = found[listing.first :]

    async def _put(self, batch: Batch) -> None:
        if batch.puts:
            async with self._in_flight:
                raise_first_error([result async for result in self.client.facts.put_many(batch.puts)])
