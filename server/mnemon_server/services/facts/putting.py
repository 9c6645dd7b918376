"""Stores facts: checks them, embeds them together, and writes them to the vault in their order."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FactNotFoundError, MnemonError, PermissionDeniedError
from mnemon_server.domain.facts import Fact, FactReceipt, FactValue, PutFact, PutMode
from mnemon_server.domain.namespaces import encode_namespace
from mnemon_server.domain.records import RequestKey, WriteReceipt
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import completion
from mnemon_server.services.facts.checks import put_violations
from mnemon_server.services.facts.passages import fact_passages
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.facts.writes import PreparedFact, store, store_changes, with_changes
from mnemon_server.services.writing.writes import (
    new_id,
    problem,
    replay,
    request_key,
    settled,
    take_in_checked,
    take_in_own,
    vector_bytes,
)

# Measures how many values a JSON value contains.


MANY = 2_000
"""A JSON value with more values than this takes some milliseconds to walk."""


def holds_many(value: Any, *, most: int = MANY) -> bool:
    """Whether a JSON value contains more than `most` values. Visits no more than that."""
    waiting, count = [value], 0
    while waiting:
        item = waiting.pop()
        if not isinstance(item, Mapping | list | tuple):
            continue
        count += len(item)
        if count > most:
            return True
        waiting.extend(item.values() if isinstance(item, Mapping) else item)
    return False


Found = TypeVar("Found")


@dataclass(slots=True)
class _Run:
    """Stores facts in one transaction, and keeps the outcome of each in the last run."""

    facts: Sequence[PreparedFact]
    store: Callable[[VaultTransaction, PreparedFact], FactReceipt] = store
    outcomes: list[FactReceipt | MnemonError] = field(default_factory=list)

    def __call__(self, tx: VaultTransaction) -> str:
        """Stores the facts. The error of a single fact fails the transaction; with several, an error is an outcome."""
        self.outcomes = []
        for fact in self.facts:
            try:
                self.outcomes.append(self.store(tx, fact))
            except MnemonError as error:
                if len(self.facts) == 1:
                    raise
                self.outcomes.append(error)
        first = self.outcomes[0]
        return _answer(first.receipt) if len(self.outcomes) == 1 and isinstance(first, FactReceipt) else ""


class FactPutting:
    """Stores facts. Calls may run concurrently."""

    def __init__(self, vault: Vault, embedder: EmbeddingBatcher) -> None:
        self._vault = vault
        self._embedder = embedder

    async def put(self, requests: Sequence[PutFact]) -> list[FactReceipt | MnemonError]:
        """Stores facts in their order, with one result each; an invalid one does not affect the others."""
        return await take_in_checked(requests, await _off_loop(requests, self._problems), self._store)

    async def put_changes(self, fact: Fact, changes: FactValue, key: RequestKey | None) -> FactReceipt | MnemonError:
        """Changes keys of the value; one that becomes None is removed.

        RevisionMismatchError if other parts of the fact that are searched have changed since `fact` was read.
        """
        try:
            request = with_changes(fact, changes)
        except MnemonError as error:
            return error
        [problem_found] = await _off_loop([request], self._problems)
        if problem_found:
            return problem_found
        [prepared] = await self._prepare([request])
        if isinstance(prepared, MnemonError):
            return prepared
        heads = self._vault.collection(FACTS).heads
        run = _Run([prepared], partial(store_changes, changes=changes, heads=heads))
        [result] = await _results(run, self._vault.transact(run, request=key))
        return result

    async def replay(self, key: RequestKey | None, *, otherwise: MnemonError) -> FactReceipt | MnemonError:
        """The first answer to this request, or `otherwise` if the request is new."""
        try:
            receipt = await replay(self._vault, key)
        except MnemonError as error:
            return error
        return otherwise if receipt is None else FactReceipt(_receipt(receipt), None)

    def _problems(self, requests: Sequence[PutFact]) -> list[MnemonError | None]:
        return [problem(put_violations(request, self._embedder.model.dimension)) for request in requests]

    async def _store(self, requests: Sequence[PutFact]) -> list[FactReceipt | MnemonError]:
        guard = self._vault.collection(FACTS).guard
        results = await take_in_own(requests, guard, _unprepared, self._prepare_and_write)
        return [_as_missing(request, result) for request, result in zip(requests, results, strict=True)]

    async def _prepare_and_write(self, requests: Sequence[PutFact]) -> list[FactReceipt | MnemonError]:
        return await self._write(await self._prepare(requests), [_key(request) for request in requests])

    async def _prepare(self, requests: Sequence[PutFact]) -> list[PreparedFact | MnemonError]:
        texts = await _off_loop(requests, _texts)
        passages = await fact_passages(self._embedder, self._vault.collection(FACTS).heads, requests, texts)
        return [
            parts
            if isinstance(parts, MnemonError)
            else PreparedFact(request, request.key or new_id(), each.content, parts)
            for request, each, parts in zip(requests, texts, passages, strict=True)
        ]

    async def _write(
        self, facts: Sequence[PreparedFact | MnemonError], keys: Sequence[RequestKey | None]
    ) -> list[FactReceipt | MnemonError]:
        results: list[FactReceipt | MnemonError | None] = [
            fact if isinstance(fact, MnemonError) else None for fact in facts
        ]
        # All are handed over before the first is awaited, so they keep their order.
        handed_over = [
            (places, run := _Run([fact for i in places if isinstance(fact := facts[i], PreparedFact)]),
             self._vault.transact(run, request=keys[places[0]]))
            for places in _runs(facts, keys)
        ]  # fmt: skip
        for places, run, future in handed_over:
            for i, result in zip(places, await _results(run, future), strict=True):
                results[i] = result
        return [result for result in results if result is not None]


async def _off_loop(requests: Sequence[PutFact], inspect: Callable[[Sequence[PutFact]], list[Found]]) -> list[Found]:
    """The result of `inspect`, which runs on a thread if a value is so large that it would delay other calls."""
    if any(holds_many(request.value) for request in requests):
        return await asyncio.to_thread(inspect, requests)
    return inspect(requests)


def _unprepared(request: PutFact) -> DocumentWrite:
    """The parts of the record that decide who may write it."""
    return DocumentWrite(
        document=Document("", "", scope=request.source, fields={"namespace": encode_namespace(request.namespace)}),
        passages=(),
    )


def _as_missing(request: PutFact, result: FactReceipt | MnemonError) -> FactReceipt | MnemonError:
    """A caller sees no facts in a foreign namespace, so a fact that must exist there is missing."""
    if isinstance(result, PermissionDeniedError) and (request.mode is PutMode.UPDATE or request.expected_revision):
        return FactNotFoundError(request.key)
    return result


def _texts(requests: Sequence[PutFact]) -> list[IndexedTexts]:
    return [IndexedTexts.of(request.value, request.index) for request in requests]


def _runs(facts: Sequence[PreparedFact | MnemonError], keys: Sequence[RequestKey | None]) -> Iterator[list[int]]:
    """Yields the indexes of the facts of each transaction. A fact with a request id gets a transaction of its own."""
    valid = [i for i, fact in enumerate(facts) if isinstance(fact, PreparedFact)]
    for alone, places in groupby(valid, lambda i: i if keys[i] is not None else -1):
        del alone
        yield list(places)


async def _results(run: _Run, future: "Future[TransactionReceipt]") -> list[FactReceipt | MnemonError]:
    receipt = await settled(completion(future), "fact")
    if isinstance(receipt, MnemonError):
        return [receipt] * len(run.facts)
    if receipt.replayed:
        return [FactReceipt(_receipt(receipt), None)]
    return [_result(outcome, receipt) for outcome in run.outcomes]


def _result(outcome: FactReceipt | MnemonError, receipt: TransactionReceipt) -> FactReceipt | MnemonError:
    if isinstance(outcome, MnemonError):
        return outcome
    done = replace(outcome.receipt, sequence=outcome.receipt.sequence or receipt.sequence)
    return replace(outcome, receipt=done)


def _answer(receipt: WriteReceipt) -> str:
    return json.dumps([receipt.id, receipt.outcome.value, receipt.revision])


def _receipt(receipt: TransactionReceipt) -> WriteReceipt:
    return receipt.of_record(*json.loads(receipt.answer))


def _key(request: PutFact) -> RequestKey | None:
    if not request.request_id:
        return None
    return request_key(
        request.request_id,
        "put fact",
        request.namespace,
        request.key,
        request.value,
        {key: list(value) if isinstance(value, tuple) else value for key, value in request.metadata.items()},
        request.created_at,
        request.updated_at,
        None if request.ttl is None else request.ttl.total_seconds(),
        [request.index.off, *request.index.paths],
        request.mode,
        vector_bytes(request.embedding),
        request.expected_revision,
        request.source,
    )
