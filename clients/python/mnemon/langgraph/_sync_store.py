"""LangGraph's store on a `Client`."""

import asyncio
from collections.abc import Iterable
from itertools import islice

from langgraph.store.base import BaseStore, Op, Result, SearchItem, TTLConfig

from mnemon._sync.client import Client
from mnemon.langgraph._batches import Batch, IndexFields, Listing, Search, index_of, raise_first_error, search_item


class MnemonStore(BaseStore):
    """A LangGraph store whose items are facts of a Mnemon server, or of an embedded vault.

        with Client("127.0.0.1:50051") as client:
            store = MnemonStore(client, index={"fields": ["text"]}, ttl={"default_ttl": 60 * 24})
            graph = builder.compile(store=store)

    Items are searched by meaning and by word. `index` names the texts that are searched where a put names none; without
    it that is the text under "content", or else every text of the value. `ttl` is LangGraph's `TTLConfig`, of which
    `default_ttl` and `refresh_on_read` count: expired items are never returned, and the server removes them.

    A put keeps the time at which its item was created. Methods raise the classes of `mnemon.MnemonError`; a filter that
    the server does not take, such as one of a nested object, is a `mnemon.InvalidArgumentError`, which is a ValueError.
    The asynchronous methods run in threads; `AsyncMnemonStore` is for asyncio.
    """

    supports_ttl = True

    def __init__(self, client: Client, *, index: IndexFields | None = None, ttl: TTLConfig | None = None) -> None:
        """Calls nothing. Raises TypeError for an AsyncClient, ValueError for an index with an embedder."""
        if not isinstance(client, Client):
            raise TypeError(f"a MnemonStore takes a mnemon.Client, not {type(client).__name__}; see AsyncMnemonStore")
        super().__init__()
        self.client = client
        self.ttl_config = ttl
        self._index = index_of(index)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations, reads before writes; results are in their order. Of writes of one item the last wins."""
        batch = Batch.of(ops, self._index)
        results = list(batch.blank)
        for gets in batch.gets:
            for position, item in gets.results(self.client.facts.get_many(gets.positions, renew_ttl=gets.renew_ttl)):
                results[position] = item
        for search in batch.searches:
            results[search.position] = self._found(search)
        for listing in batch.listings:
            results[listing.position] = self._namespaces(listing)
        if batch.puts:
            raise_first_error(list(self.client.facts.put_many(batch.puts)))
        for namespace, key in batch.deletes:
            self.client.facts.delete(namespace, key)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _found(self, search: Search) -> list[SearchItem]:
        found: list[SearchItem] = []
        for offset, limit in search.pages:
            answer = self.client.facts.search(**search.arguments, offset=offset, limit=limit)
            found += map(search_item, answer)
            if len(answer) < limit:
                break
        return found

    def _namespaces(self, listing: Listing) -> list[tuple[str, ...]]:
        return list(islice(self.client.facts.namespaces(**listing.arguments), listing.first, listing.last))
