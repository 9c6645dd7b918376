"""The fact service: JSON objects under a key of a namespace, found by name, by meaning and by word.

A fact is a document of the collection FACTS, whose id stands for namespace and key together: nothing is looked up by
one of them alone. What has expired is gone for whoever reads at once, and for good with the next sweep.
"""

import asyncio
import builtins
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.errors import FactNotFoundError, MnemonError, RevisionMismatchError
from mnemon_server.domain.facts import (
    Fact,
    FactFilter,
    FactPage,
    FactQuery,
    FactReceipt,
    FactSearchAnswer,
    NamespacePage,
    PutFact,
    key_violations,
    record_id,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import AckLevel, BulkDeleteReceipt, WriteReceipt
from mnemon_server.domain.validation import (
    content_violations,
    refuse,
    request_id_violations,
    revision_violations,
)
from mnemon_server.embedding.base import EmbeddingModel
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.base import Vault, VaultTransaction
from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion
from mnemon_server.services.facts.checks import filter_violations, names_violations, pattern_violations
from mnemon_server.services.facts.deletion import FactDeletion
from mnemon_server.services.facts.filters import expired, living
from mnemon_server.services.facts.namespaces import list_namespaces
from mnemon_server.services.facts.putting import FactPutting, PutResult
from mnemon_server.services.facts.search import FactSearch
from mnemon_server.services.facts.stored_form import has_expired, stored_bytes, to_fact
from mnemon_server.services.facts.writes import renew
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.reranking import Ranker
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.gathered_reads import GatheredReads
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.pages import read_page
from mnemon_server.services.shared.writes import request_key

SWEEP_STEP = 500
"""Expired facts removed in one transaction, so that no write waits long."""

UPDATES_MAX = 20
"""How often a change that others keep overtaking is tried."""


class FactStore:
    """Facts of a vault. All methods are safe to call from many tasks at once."""

    def __init__(
        self,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        model: EmbeddingModel,
        clock: Clock = system_clock,
        exact_scan_max: int = 20_000,
        fusion: Fusion = DEFAULT_FUSION,
        ranker: Ranker | None = None,
        reader_threads: int = 4,
    ) -> None:
        """Closes the vault never: it belongs to whoever opened it.

        Args:
            vault: whose facts.
            embedder: makes the vectors.
            model: what `embedder` runs.
            clock: the time by which facts expire for whoever reads; the vault's own is that of its commits.
            exact_scan_max: up to so many candidate passages are compared one by one.
            fusion: how meaning and words become the score of a hybrid search.
            ranker: takes a second look at what a hybrid search finds; None: nobody does.
            reader_threads: reads at the same time.
        """
        self._vault = vault
        self._records = vault.collection(FACTS)
        self._clock = clock
        self._offload = Offload(reader_threads, "fact-reader")
        self._reads = GatheredReads(partial(self._read, versions=False), self._offload)
        self._reads_with_versions = GatheredReads(partial(self._read, versions=True), self._offload)
        passages = PassageSearch(
            self._records,
            embedder.embed_query,
            applier=None,
            exact_scan_max=exact_scan_max,
            fusion=fusion,
            ranker=ranker,
            threads=reader_threads,
        )
        self._search = FactSearch(self._records, passages, dimension=model.dimension, clock=clock)
        self._putting = FactPutting(vault, embedder, dimension=model.dimension)
        self._deletion = FactDeletion(vault)

    # Reading

    async def get(self, namespace: Namespace, key: str, *, renew_ttl: bool = False, versions: bool = False) -> Fact:
        """The fact of this name; FactNotFoundError where there is none, or it has expired."""
        refuse(key_violations(key))
        fact = await self._get(namespace, key, versions=versions)
        if fact is None:
            raise FactNotFoundError(key)
        return (await self._renewed([fact]))[0] if renew_ttl else fact

    async def get_many(self, names: Sequence[tuple[Namespace, str]], *, renew_ttl: bool = False) -> builtins.list[Fact]:
        """The facts of these names, in their order, 1 to 1,000; those that are not there are left out."""
        refuse(names_violations(names))
        ids = [record_id(namespace, key) for namespace, key in names]
        found = await self._offload(self._read, ids, versions=False)
        facts = [fact for fact, name in zip(found, names, strict=True) if fact and (fact.namespace, fact.key) == name]
        return await self._renewed(facts) if renew_ttl else facts

    async def list(self, where: FactFilter, *, after: int = 0, limit: int, versions: bool = False) -> FactPage:
        """A page of facts in the order in which they were first stored, from behind position `after`."""
        refuse(filter_violations(where))
        return await self._offload(self._read_page, where, after, limit, versions=versions)

    async def search(self, query: FactQuery) -> FactSearchAnswer:
        """The facts most relevant to a text or a vector, best first; see FactQuery."""
        answer = await self._offload(self._search.find, query)
        if not query.renew_ttl:
            return answer
        renewed = await self._renewed([match.fact for match in answer.matches])
        matches = (replace(match, fact=fact) for match, fact in zip(answer.matches, renewed, strict=True))
        return replace(answer, matches=tuple(matches))

    async def namespaces(
        self,
        *,
        prefix: Sequence[str] = (),
        suffix: Sequence[str] = (),
        max_depth: int = 0,
        after: Sequence[str] = (),
        limit: int,
    ) -> NamespacePage:
        """A page of the namespaces that hold facts, each once.

        They come by code point, the end of a label counting as ".", so that those below one come together.

        Args:
            prefix: first labels; "*" stands for any one label.
            suffix: last labels, likewise.
            max_depth: deeper ones are cut to so many labels; 0 cuts none.
            after: the last one of the page before; empty for the first page.
            limit: most of them on the page.
        """
        refuse(pattern_violations(prefix, suffix, max_depth))
        return await self._offload(
            list_namespaces,
            self._records,
            self._clock(),
            prefix=tuple(prefix),
            suffix=tuple(suffix),
            max_depth=max_depth,
            after=tuple(after),
            limit=limit,
        )

    # Writing

    async def put(self, request: PutFact) -> FactReceipt:
        """Stores a fact in place of the one of its name.

        A replay is answered with the first receipt, and with the fact as it is now.

        Raises:
            FactExistsError, FactNotFoundError: not what `mode` says is there.
            RevisionMismatchError: the fact has another revision than the expected one.
            RequestIdReusedError, EmbeddingError, InvalidArgumentError, StorageFullError, StorageFailedError.
        """
        [result] = await self._putting.put([request])
        return await self._told(request.namespace, result)

    async def put_many(self, requests: Sequence[PutFact]) -> builtins.list[WriteReceipt | MnemonError]:
        """Stores facts in their order, one result each; what is wrong with one is no other's business.

        Neighbours without a request id are one transaction.
        """
        results = await self._putting.put(requests)
        return [result if isinstance(result, MnemonError) else result.receipt for result in results]

    async def update_content(
        self, namespace: Namespace, key: str, content: str, *, request_id: str = ""
    ) -> FactReceipt:
        """Puts a text in the place of the one under "content"; all else of the fact stays, and is searched as before.

        FactNotFoundError where there is no fact. Further errors as `put`.
        """
        refuse([*key_violations(key), *content_violations(content, "content"), *request_id_violations(request_id)])
        identity = request_key(request_id, "update content", namespace, key, content)
        result: PutResult | MnemonError = FactNotFoundError(key)
        for _ in range(UPDATES_MAX):
            fact = await self._get(namespace, key)
            if fact is None:
                result = await self._putting.replay(identity, otherwise=FactNotFoundError(key))
            else:
                result = await self._putting.put_content(fact, content, identity)
            if not isinstance(result, RevisionMismatchError):
                break
        return await self._told(namespace, result)

    async def delete(
        self,
        namespace: Namespace,
        key: str,
        *,
        expected_revision: int | None = None,
        request_id: str = "",
        ack: AckLevel = AckLevel.DURABLE,
    ) -> WriteReceipt:
        """Removes a fact for good, its earlier versions included; outcome MISSING where there is none.

        RevisionMismatchError where it has another revision than the expected one.
        """
        del ack  # What is durable can be found: the index of the vault is its own.
        wrong = [*key_violations(key), *revision_violations(expected_revision), *request_id_violations(request_id)]
        refuse(wrong)
        return await self._deletion.delete(namespace, key, expected_revision=expected_revision, request_id=request_id)

    async def delete_many(self, where: FactFilter, *, dry_run: bool = False, request_id: str = "") -> BulkDeleteReceipt:
        """Removes for good, in one transaction, every fact that matches; `dry_run` counts them, and removes nothing."""
        refuse([*filter_violations(where), *request_id_violations(request_id)])
        if dry_run:
            count = await self._offload(self._records.count_documents, living(where, self._clock()))
            return BulkDeleteReceipt(count)
        return await self._deletion.delete_many(where, request_id=request_id)

    async def sweep(self) -> int:
        """Removes the facts that have expired, a bounded number at a time; returns how many went."""
        removed, after = 0, 0
        while True:
            rows = await self._offload(
                self._records.list_documents, expired(self._clock()), after=after, limit=SWEEP_STEP
            )
            if rows:
                after = rows[-1][0]
                removed += await self._deletion.delete_expired([document.doc_id for _, document in rows])
            if len(rows) < SWEEP_STEP:
                return removed

    async def aclose(self) -> None:
        """Waits for what has begun; calls after it fail."""
        await asyncio.to_thread(self._offload.close)
        await asyncio.to_thread(self._search.close)

    # From documents to facts

    async def _get(self, namespace: Namespace, key: str, *, versions: bool = False) -> Fact | None:
        reads = self._reads_with_versions if versions else self._reads
        fact = await reads.get(record_id(namespace, key))
        return fact if fact and (fact.namespace, fact.key) == (namespace, key) else None

    def _read(self, record_ids: Sequence[str], *, versions: bool) -> builtins.list[Fact | None]:
        """The facts of these records, in their order; None where there is none, or it has expired. Blocks."""
        now = self._clock()
        return [
            None if document is None or has_expired(document, now) else to_fact(document, versions=versions)
            for document in self._records.get_documents(record_ids)
        ]

    def _read_page(self, where: FactFilter, after: int, limit: int, *, versions: bool) -> FactPage:
        size_of = partial(stored_bytes, versions=versions)
        matching = living(where, self._clock())
        documents, position = read_page(self._records, matching, after=after, limit=limit, size_of=size_of)
        return FactPage(tuple(to_fact(document, versions=versions) for document in documents), position)

    async def _renewed(self, facts: Sequence[Fact]) -> builtins.list[Fact]:
        """The facts, those with a ttl with their new end."""
        names = {(fact.namespace, fact.key): record_id(fact.namespace, fact.key) for fact in facts if fact.ttl}
        if not names:
            return [*facts]
        ends: dict[str, datetime] = {}

        def program(tx: VaultTransaction) -> str:
            ends.clear()
            ends.update(renew(tx, list(names.values())))
            return ""

        await completion(self._vault.transact(program))
        ended = ((fact, ends.get(names.get((fact.namespace, fact.key), ""))) for fact in facts)
        return [replace(fact, expires_at=end) if end else fact for fact, end in ended]

    async def _told(self, namespace: Namespace, result: PutResult | MnemonError) -> FactReceipt:
        """What a caller is told of a put: the fact as it is now."""
        if isinstance(result, MnemonError):
            raise result
        fact = await self._get(namespace, result.receipt.id) if result.fact is None else result.fact
        return FactReceipt(result.receipt, fact)
