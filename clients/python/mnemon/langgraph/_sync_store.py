"""LangGraph's store on a `Client`."""

import asyncio
from collections.abc import Iterable
from itertools import islice

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

from mnemon._sync.client import Client
from mnemon.langgraph._batches import Batch, IndexFields, Listing, index_of, raise_first_error, ttl_of
from mnemon.langgraph._searching import search_steps, take


class MnemonStore(BaseStore):
    """A LangGraph store whose items are facts of a Mnemon server, or of a vault inside this program.

        with Client("127.0.0.1:50051") as client:
            store = MnemonStore(client, index={"fields": ["text"]}, ttl={"default_ttl": 60 * 24})
            graph = builder.compile(store=store)

    Searches find items by meaning and by word. `index` names the searched texts for a put without an index of its own.
    The default is the text under "content", or every text of the value. `ttl` is LangGraph's `TTLConfig`, of which
    `default_ttl` and `refresh_on_read` apply. Expired items are never returned, and the server removes them.

    Filters compare as in LangGraph's own store, and a dotted key means a key of an inner object. The client evaluates
    conditions that the server cannot, such as an inner object, a null or a list of numbers, on all other matches.

    A put keeps the creation time of its item. Methods raise subclasses of `mnemon.MnemonError`; a
    `mnemon.InvalidArgumentError` is also a ValueError. The asynchronous methods run in threads; for asyncio, use
    `AsyncMnemonStore`.
    """

    supports_ttl = True

    def __init__(
        self, client: Client, *, index: IndexFields | IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        """Makes no call. Warns about an embedder, which is not used. Raises TypeError for an AsyncClient."""
        if not isinstance(client, Client):
            raise TypeError(f"a MnemonStore takes a mnemon.Client, not {type(client).__name__}; see AsyncMnemonStore")
        super().__init__()
        self.client = client
        self.ttl_config = ttl_of(ttl)
        self._index = index_of(index)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs operations, reads before writes, and returns results in order. The last write of an item wins."""
        batch = Batch.of(ops, self._index)
        results = list(batch.blank)
        for gets in batch.gets:
            facts = self.client.facts.get_many(gets.positions)
            if names := gets.renewals(facts):
                self.client.facts.renew(names)
            for position, item in gets.results(facts):
                results[position] = item
        for position, op in batch.searches:
            results[position] = take(search_steps(op), lambda call: call(self.client.facts))
        for listing in batch.listings:
            results[listing.position] = self._namespaces(listing)
        if batch.puts:
            raise_first_error(list(self.client.facts.put_many(batch.puts)))
        for namespace, key in batch.deletes:
            self.client.facts.delete(namespace, key, allow_missing=True)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Like `batch`, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _namespaces(self, listing: Listing) -> list[tuple[str, ...]]:
        return list(islice(self.client.facts.list_namespaces(**listing.arguments), listing.first, listing.last))
