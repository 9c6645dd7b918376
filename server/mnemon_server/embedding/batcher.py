"""One queue in front of the model: concurrent calls share batches, and queries take priority."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from time import perf_counter
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from mnemon_server.domain.errors import EmbeddingError, EmbeddingUnavailableError, NotServingError, TooManyRequestsError
from mnemon_server.domain.observation.figures import BATCH_SECONDS, BATCH_TEXTS, traced
from mnemon_server.embedding.base import Embedder, EmbeddingModel, Span, Vector, Vectors
from mnemon_server.embedding.batch_queue import BatchQueue, Item
from mnemon_server.embedding.text_cache import TextCache, text_key
from mnemon_server.embedding.unrelated import unrelated_cosine

BATCH_TOKENS_MAX = 256
"""Maximum tokens in a bulk batch. That is one run of the model, about 30 ms on one core; an urgent text may have to
wait that long.
"""

CACHE_ENTRIES_MAX = 8192
WAITING_TEXTS_MAX = 16_384
RETRY_AFTER_S = 1.0
COVERAGES_KEPT = 1_024
"""Number of recent queries whose coverage is cached: a search asks for it several times."""


SHARE_PER_FREE = 7
"""A tenant may have at most seven times as many texts waiting as there is room for: some room is left for others."""


class EmbeddingMeter(Protocol):
    """Counts for how long the model runs for each tenant, and ends it. Any thread may call it."""

    def require(self, tenant: str, *, stored: bool) -> None:
        """Raises QuotaExceededError if no more may be embedded for the tenant now, or, with `stored`, be stored."""

    def note(self, tenant: str, seconds: float) -> None:
        """Counts the seconds of a run."""


@dataclass(slots=True)
class _State:
    """The state that all views of a batcher share; guarded by its condition."""

    direct_runs: int = 0
    batch_runs: int = 0
    closed: bool = False


class _Call:
    """The texts of one caller: where their vectors go, and how many are missing."""

    def __init__(self, count: int, dimension: int) -> None:
        self.vectors = np.empty((count, dimension), np.float32)
        self.missing = 0
        self.items: list[Item[_Call]] = []
        self.done: Future[None] = Future()

    def finish(self, error: Exception | None = None) -> None:
        """Wakes the caller, from any thread. Only the first call has an effect."""
        with suppress(InvalidStateError):
            if error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(error)


class EmbeddingBatcher:
    """Combines the texts of concurrent calls into batches for one embedder, which it does not own.

    The number of worker threads equals the embedder's parallelism. Free workers take and divide what is waiting at
    once, so texts form larger batches only while all workers are busy. Splitting has its own thread; the event loop
    never computes. Calls may come from several event loops, and from threads without one. Use it as an async context
    manager, or call `close`.

    The tokens of a batch are counted with padding. No cache entries disable the cache. A call that would exceed the
    maximum of waiting texts is refused; urgent texts have a limit of the same size. `of` makes the view of a tenant.
    Tenants share these limits, and take turns at the model; the meter counts the seconds of each.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        batch_tokens_max: int = BATCH_TOKENS_MAX,
        cache_entries_max: int = CACHE_ENTRIES_MAX,
        waiting_texts_max: int = WAITING_TEXTS_MAX,
        meter: EmbeddingMeter | None = None,
    ) -> None:
        self._tenant = ""
        self._meter = meter
        self._embedder = embedder
        self._coverage = lru_cache(COVERAGES_KEPT)(embedder.coverage)
        self._unrelated_cosine = cache(partial(unrelated_cosine, embedder))
        self._waiting_texts_max = waiting_texts_max
        # Guards all attributes below.
        self._changed = threading.Condition()
        self._queue: BatchQueue[_Call] = BatchQueue(batch_tokens_max)
        self._cache = TextCache[Vector](cache_entries_max)
        self._caches = cache_entries_max > 0
        self._state = _State()
        self._splitter = ThreadPoolExecutor(1, thread_name_prefix="embedding-split")
        self._workers = [
            threading.Thread(target=self._work, name=f"embedding-{number}", daemon=True)
            for number in range(embedder.parallelism)
        ]
        for worker in self._workers:
            worker.start()

    def forget(self) -> None:
        """Drops what is cached of earlier texts."""
        with self._changed:
            self._cache.clear()
        self._coverage.cache_clear()
        self._embedder.forget()

    def of(self, tenant: str) -> Self:
        """The same batcher for the texts of a tenant."""
        view = copy(self)
        view._tenant = tenant
        return view

    @property
    def model(self) -> EmbeddingModel:
        """The model that makes the vectors."""
        return self._embedder.model

    @property
    def waiting_texts(self) -> int:
        """The number of texts without a vector, urgent or not, including those being embedded; direct runs do not
        count.
        """
        with self._changed:
            return self._queue.waiting(urgent=True)[0] + self._queue.waiting(urgent=False)[0]

    async def embed(self, texts: Sequence[str], *, urgent: bool = False) -> Vectors:
        """One vector of unit length per text, in order, as an array of shape (len(texts), dimension).

        Pass passages rather than documents, because the model ignores text beyond its limit. Urgent texts, as of
        searches, go ahead of all others.

        Raises:
            EmbeddingError: the model failed on the batch of one of these texts.
            TooManyRequestsError: too many texts are waiting.
            QuotaExceededError: the model has run for this tenant as long as it may for now.
            NotServingError: the batcher is closed, or was closed during the call.
        """
        return await self._embed_as_given(self.model.as_passages(texts), urgent=urgent)

    async def fetch_query(self, text: str) -> None:
        """Has the vector of a query cached, so that `embed_query` does not occupy a thread while an endpoint answers.

        Does nothing if the model runs in this process. Raises the errors of `embed`.
        """
        if self.model.endpoint and self._caches:
            await self._embed_as_given([self.model.as_query(text)], urgent=True)

    def embed_blocking(self, texts: Sequence[str]) -> Vectors:
        """Like `embed` without urgency, but blocks: for a background thread, whose texts are stored already, so that no
        quota holds."""
        call = _Call(len(texts), self.model.dimension)
        with self._changed:
            self._enqueue(call, self.model.as_passages(texts), urgent=False, limited=False)
        return self._wait_for(call) if call.missing else call.vectors

    def embed_query(self, text: str) -> Vector:
        """The vector of one text, of unit length and shape (dimension,). Blocks; any thread may call it.

        The model runs in the calling thread, ahead of the queue. If as many such runs are in progress as there are
        cores, the text goes through the queue as an urgent one.

        Raises:
            EmbeddingError: the model failed.
            TooManyRequestsError: too many urgent texts are waiting.
            NotServingError: the batcher is closed, or was closed during the call.
        """
        call = _Call(1, self.model.dimension)
        text = self.model.as_query(text)
        with self._changed:
            vector = self._cached(text)
            if vector is not None:
                return vector.copy()
            self._require_quota(stored=False)
            direct = self._state.direct_runs < self._embedder.parallelism
            if direct:
                self._state.direct_runs += 1
            else:
                self._enqueue(call, [text], urgent=True)
        return self._embed_directly(text) if direct else self._wait_for(call)[0]

    def coverage(self, text: str) -> float:
        """How well the model's vocabulary covers a text, 0 to 1. Blocks; any thread may call it.

        Raises:
            EmbeddingError: the tokenizer failed, or the model is closed.
        """
        return self._coverage(text)

    def unrelated_cosine(self) -> float:
        """The cosine that the model gives to unrelated texts, at least 0 and below 1. The first call measures it.

        Blocks; any thread may call it.

        Raises:
            EmbeddingError: the model failed, or is closed.
        """
        try:
            return self._unrelated_cosine()
        except Exception as error:
            raise _error_from(error) from error

    async def split(self, texts: Sequence[str]) -> list[list[Span]]:
        """The passages of each text, as `Embedder.split` makes them.

        Raises:
            EmbeddingError: the tokenizer failed.
            NotServingError: the batcher is closed.
        """
        if self._state.closed:
            raise _closed_error()
        if all(self._surely_fits(text) for text in texts):
            return [[Span(0, len(text))] for text in texts]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._splitter, lambda: [self._embedder.split(text) for text in texts])

    async def close(self) -> None:
        """Refuses new calls, fails those that wait, and returns once the running batches are done."""
        with self._changed:
            self._state.closed = True
            waiting = self._queue.waiters()
            self._changed.notify_all()
        for call in waiting:
            call.finish(_closed_error())
        await asyncio.to_thread(self._join)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _join(self) -> None:
        for worker in self._workers:
            worker.join()
        with self._changed:
            self._changed.wait_for(lambda: self._state.direct_runs == 0)
        self._splitter.shutdown(cancel_futures=True)

    async def _embed_as_given(self, texts: Sequence[str], *, urgent: bool) -> Vectors:
        call = _Call(len(texts), self.model.dimension)
        with self._changed:
            self._enqueue(call, texts, urgent=urgent)
            if call.missing == 0:
                return call.vectors
        try:
            await asyncio.wrap_future(traced("embed", call.done))
        finally:
            self._forget(call)
        return call.vectors

    def _enqueue(self, call: _Call, texts: Sequence[str], *, urgent: bool, limited: bool = True) -> None:
        if self._state.closed:
            raise _closed_error()
        missing = []
        for row, text in enumerate(texts):
            key = text_key(text)
            vector = self._cache.get(key)
            if vector is None:
                missing.append((row, key, text))
            else:
                call.vectors[row] = vector
        if missing:
            if limited:
                self._require_quota(stored=not urgent)
            self._require_room(len(missing), urgent=urgent)
        call.missing = len(missing)
        call.items = [
            self._queue.add(key, text, call, row, urgent=urgent, tenant=self._tenant) for row, key, text in missing
        ]
        self._changed.notify()

    def _require_quota(self, *, stored: bool) -> None:
        if self._meter is not None:
            self._meter.require(self._tenant, stored=stored)

    def _require_room(self, texts: int, *, urgent: bool) -> None:
        waiting, own = self._queue.waiting(urgent=urgent, tenant=self._tenant)
        free = self._waiting_texts_max - waiting
        if texts > free:
            raise TooManyRequestsError("too many texts are waiting to be embedded", RETRY_AFTER_S)
        if self._tenant and own + texts > SHARE_PER_FREE * free:
            raise TooManyRequestsError("too many texts of this tenant are waiting to be embedded", RETRY_AFTER_S)

    def _surely_fits(self, text: str) -> bool:
        """Whether a text is one passage even if each of its characters is a token."""
        return len(text) < self.model.tokens_max and text.isascii()

    def _cached(self, text: str) -> Vector | None:
        if self._state.closed:
            raise _closed_error()
        return self._cache.get(text_key(text))

    def _embed_directly(self, text: str) -> Vector:
        """Runs the model in this thread. The caller has counted the direct run."""
        vector: Vector | None = None
        began = perf_counter()
        try:
            vector = self._embedder.embed([text])[0]
        except Exception as error:
            raise _error_from(error) from error
        finally:
            seconds = perf_counter() - began
            _count_run(1, seconds)
            with self._changed:
                if self._meter is not None:
                    self._meter.note(self._tenant, seconds)
                self._state.direct_runs -= 1
                if vector is not None:
                    self._cache.put(text_key(text), vector)
                if self._state.closed:
                    self._changed.notify_all()
        return vector

    def _wait_for(self, call: _Call) -> Vectors:
        try:
            call.done.result()
        finally:
            self._forget(call)
        return call.vectors

    def _forget(self, call: _Call) -> None:
        with self._changed:
            if call.missing:
                self._queue.abandon(call.items, call)

    def _work(self) -> None:
        while self._wait_for_texts():
            self._count_texts()
            with self._changed:
                free = self._embedder.parallelism - self._state.batch_runs - self._state.direct_runs
                batch = self._queue.take_batch(max(free, 1))
                self._state.batch_runs += 1 if batch else 0
                if not self._queue.is_empty():
                    # Each call wakes one worker. A worker wakes the next one while there is work.
                    self._changed.notify()
            if batch:
                self._deliver(batch, self._embed(batch))

    def _wait_for_texts(self) -> bool:
        """Returns True when a batch is ready, False when the batcher is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.closed or not self._queue.is_empty())
            return not self._state.closed

    def _count_texts(self) -> None:
        with self._changed:
            items = self._queue.take_uncounted()
        if not items:
            return
        try:
            counts = self._embedder.token_counts([item.text for item in items])
        except Exception as error:  # noqa: BLE001  the worker must outlive whatever a model raises
            self._deliver(items, error)
            return
        with self._changed:
            self._queue.add_counted(items, counts)

    def _embed(self, batch: Sequence[Item[_Call]]) -> Vectors | Exception:
        began = perf_counter()
        try:
            return self._embedder.embed([item.text for item in batch])
        except Exception as error:  # noqa: BLE001  the worker must outlive whatever a model raises
            return error
        finally:
            seconds = perf_counter() - began
            _count_run(len(batch), seconds)
            with self._changed:
                self._state.batch_runs -= 1
                self._note(batch, seconds)

    def _note(self, batch: Sequence[Item[_Call]], seconds: float) -> None:
        """Counts a run, in parts by the lengths of the tenants' texts."""
        if self._meter is not None:
            characters: Counter[str] = Counter()
            for item in batch:
                characters[item.tenant] += len(item.text) + 1
            for tenant, count in characters.items():
                self._meter.note(tenant, seconds * count / characters.total())

    def _deliver(self, batch: Sequence[Item[_Call]], result: Vectors | Exception) -> None:
        with self._changed:
            self._queue.finish(batch)
            if isinstance(result, Exception):
                calls = {call for item in batch for call, _ in item.waiters}
            else:
                calls = self._store(batch, result)
        for call in calls:
            call.finish(_error_from(result) if isinstance(result, Exception) else None)

    def _store(self, batch: Sequence[Item[_Call]], vectors: Vectors) -> set[_Call]:
        """Distributes the vectors of a batch, and returns the calls that are now complete."""
        complete = set()
        for item, vector in zip(batch, vectors, strict=True):
            self._cache.put(item.key, vector)
            for call, row in item.waiters:
                call.vectors[row] = vector
                call.missing -= 1
                if call.missing == 0:
                    complete.add(call)
        return complete


def _count_run(texts: int, seconds: float) -> None:
    BATCH_TEXTS.note(texts)
    BATCH_SECONDS.note(seconds)


def _error_from(cause: Exception) -> EmbeddingError:
    """A separate error for each caller: raising one instance in several tasks would mix their tracebacks."""
    kind = EmbeddingUnavailableError if isinstance(cause, EmbeddingUnavailableError) else EmbeddingError
    error = kind(str(cause))
    error.__cause__ = cause
    return error


def _closed_error() -> NotServingError:
    return NotServingError("the server is shutting down")
