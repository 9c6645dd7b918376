"""LangGraph's own stores and those on a Mnemon server behind one interface, for blocking and asyncio calls."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from langgraph.store.base import BaseStore, Op
from langgraph.store.memory import InMemoryStore
from mnemon import AsyncClient, Client
from mnemon.langgraph import AsyncMnemonStore, IndexFields, MnemonStore

from tests.support.cases import exhaustive

DIMENSION = 256

REFERENCES = ("reference", exhaustive("reference awaited"))
BATCHED = "asyncio"
MNEMON = ("blocking", exhaustive("blocking awaited"), BATCHED, exhaustive("asyncio from a thread"))
"""Both stores, by the methods that they are made for, and by the others."""


class Store:
    """A store whose methods are called in one of these ways."""

    def __init__(self, store: BaseStore, way: str) -> None:
        self.store = store
        self._way = way

    async def put(self, *arguments: Any, **options: Any) -> None:
        """Stores an item."""
        await self._call("put", *arguments, **options)

    async def get(self, *arguments: Any, **options: Any) -> Any:
        """One item, or None."""
        return await self._call("get", *arguments, **options)

    async def delete(self, *arguments: Any) -> None:
        """Removes an item."""
        await self._call("delete", *arguments)

    async def search(self, *arguments: Any, **options: Any) -> list[Any]:
        """The matching items."""
        return list(await self._call("search", *arguments, **options))

    async def keys(self, *arguments: Any, **options: Any) -> list[str]:
        """The keys of the matching items."""
        return [item.key for item in await self.search(*arguments, **options)]

    async def list_namespaces(self, **options: Any) -> list[tuple[str, ...]]:
        """Namespaces."""
        return list(await self._call("list_namespaces", **options))

    async def batch(self, ops: Sequence[Op]) -> list[Any]:
        """The results of the operations."""
        return list(await self._call("batch", ops))

    async def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        if self._way in ("reference", "blocking"):
            return getattr(self.store, name)(*arguments, **options)
        if self._way == "asyncio from a thread":
            return await asyncio.to_thread(getattr(self.store, name), *arguments, **options)
        return await getattr(self.store, f"a{name}")(*arguments, **options)


@asynccontextmanager
async def opened(way: str, address: str, fields: list[str] | None = None, **options: Any) -> AsyncIterator[Store]:
    """An empty store that is called in this way. `fields` are its searched fields."""
    if way.startswith("reference"):
        yield Store(InMemoryStore(index={"dims": DIMENSION, "embed": embedded, "fields": fields}), way)
        return
    index: IndexFields | None = {"fields": fields} if fields else None
    with Client(address) as client:
        client.facts.delete_many((), subtree=True)
        if way.startswith("blocking"):
            yield Store(MnemonStore(client, index=index, **options), way)
            return
    async with AsyncClient(address) as asyncio_client:
        yield Store(AsyncMnemonStore(asyncio_client, index=index, **options), way)


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """Vectors for LangGraph's own store, which has no embedder: texts that share words are similar."""
    return [_vector(text) for text in texts]


def _vector(text: str) -> list[float]:
    vector = [0.0] * DIMENSION
    for word in "".join(letter if letter.isalnum() else " " for letter in text.lower()).split():
        vector[zlib.crc32(word.encode()) % DIMENSION] += 1.0
    return vector
