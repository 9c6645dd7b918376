"""LangGraph's store on a `Client`."""

import asyncio
from collections.abc import Iterable
from itertools import islice

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, SearchItem, SearchOp, TTLConfig

from mnemon._sync.client import Client
from mnemon.langgraph._batches import Batch, IndexFields, Listing, index_of, raise_first_error
from mnemon.langgraph._searching import search_steps


class MnemonStore(BaseStore):
    """A LangGraph store whose items are facts of a Mnemon server, or of an embedded vault.

        with Client("127.0.0.1:50051") as client:
            store = MnemonStore(client, index={"fields": ["text"]}, ttl={"default_ttl": 60 * 24})
            graph = builder.compile(store=store)

    Items are searched by meaning and by word. `index` names the texts that are searched where a put names none; without
    it that is the text under "content", or else every text of the value. `ttl` is LangGraph's `TTLConfig`, of which
    `default_ttl` and `refresh_on_read` count: expired items are never returned, and the server removes them.

    Filters compare as those of LangGraph's own store, and a dotted key names one of an inner object. What the server
    cannot decide, such as an inner object, a null or a list of numbers, is decided here, on all that matches otherwise.

    A put keeps the time at which its item was created. Methods raise the classes of `mnemon.MnemonError`, of which a
    `mnemon.InvalidArgumentError` is a ValueError. The asynchronous methods run in threads; `AsyncMnemonStore` is for
    asyncio.
    """

    supports_ttl = True

    def __init__(
        self, client: Client, *, index: IndexFields | IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        """Calls nothing. Warns of an embedder, which is not used; raises TypeError for an AsyncClient."""
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
            facts = self.client.facts.get_many(gets.positions)
            if names := gets.renewals(facts):
                self.client.facts.renew(names)
            for position, item in gets.results(facts):
                results[position] = item
        for position, op in batch.searches:
            results[position] = self._found(op)
        for listing in batch.listings:
            results[listing.position] = self._namespaces(listing)
        if batch.puts:
            raise_first_error(list(self.client.facts.put_many(batch.puts)))
        for namespace, key in batch.deletes:
            self.client.facts.delete(namespace, key, allow_missing=True)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`, in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _found(self, op: SearchOp) -> list[SearchItem]:
        steps = search_steps(op)
        try:
            call = next(steps)
            while True:
                call = steps.send(call(self.client.facts))
        except StopIteration as end:
            return list(end.value)

    def _namespaces(self, listing: Listing) -> list[tuple[str, ...]]:
        return list(islice(self.client.facts.namespaces(**listing.arguments), listing.first, listing.last))
