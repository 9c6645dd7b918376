"""LangGraph's store on an `AsyncClient`."""

import asyncio
from collections.abc import Iterable

from langgraph.store.base import Op, Result, SearchItem, TTLConfig
from langgraph.store.base.batch import AsyncBatchedBaseStore

from mnemon._async.client import AsyncClient
from mnemon.langgraph._batches import (
    Batch,
    Gets,
    IndexFields,
    Listing,
    Search,
    index_of,
    raise_first_error,
    search_item,
)


class AsyncMnemonStore(AsyncBatchedBaseStore):
    """As `MnemonStore`, for asyncio.

        async with AsyncClient("127.0.0.1:50051") as client:
            store = AsyncMnemonStore(client)
            graph = builder.compile(store=store)

    It is made inside of the event loop that its client is used in. What is asked for in one turn of the loop runs as
    one batch, as in LangGraph's other asynchronous stores: reads before writes, repeated reads once, and an error is
    that of every operation of the batch. The methods that block may be called in other threads only.
    """

    supports_ttl = True

    def __init__(self, client: AsyncClient, *, index: IndexFields | None = None, ttl: TTLConfig | None = None) -> None:
        """Calls nothing. Raises TypeError for a Client, ValueError for an index with an embedder."""
        # The base class looks at its task also where it was never made.
        self._task = None
        if not isinstance(client, AsyncClient):
            raise TypeError(f"an AsyncMnemonStore takes a mnemon.AsyncClient, not {type(client).__name__}")
        self._index = index_of(index)
        super().__init__()
        self.client = client
        self.ttl_config = ttl

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations, reads before writes; results are in their order. Of writes of one item the last wins."""
        batch = Batch.of(ops, self._index)
        results = list(batch.blank)
        reads = (
            *(self._get(gets, results) for gets in batch.gets),
            *(self._find(search, results) for search in batch.searches),
            *(self._list(listing, results) for listing in batch.listings),
        )
        await asyncio.gather(*reads)
        await asyncio.gather(self._put(batch), *(self.client.facts.delete(*name) for name in batch.deletes))
        return results

    async def _get(self, gets: Gets, results: list[Result]) -> None:
        facts = await self.client.facts.get_many(gets.positions, renew_ttl=gets.renew_ttl)
        for position, item in gets.results(facts):
            results[position] = item

    async def _find(self, search: Search, results: list[Result]) -> None:
        found: list[SearchItem] = []
        for offset, limit in search.pages:
            answer = await self.client.facts.search(**search.arguments, offset=offset, limit=limit)
            found += map(search_item, answer)
            if len(answer) < limit:
                break
        results[search.position] = found

    async def _list(self, listing: Listing, results: list[Result]) -> None:
        found: list[tuple[str, ...]] = []
        if listing.last > 0:
            async for namespace in self.client.facts.namespaces(**listing.arguments):
                found.append(namespace)
                if len(found) >= listing.last:
                    break
        results[listing.position] = found[listing.first :]

    async def _put(self, batch: Batch) -> None:
        if batch.puts:
            raise_first_error([result async for result in self.client.facts.put_many(batch.puts)])
