"""The fact service: JSON objects under a key of a namespace, found by name, by meaning and by word.

A fact is a document of the collection FACTS. The document's id is derived from namespace and key together. Readers no
longer see a fact once it has expired; the next sweep removes it for good.
"""

import asyncio
import builtins
import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime

from mnemon_server.domain.clock import Clock, from_microseconds, system_clock, to_microseconds
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FactNotFoundError, MnemonError, RevisionMismatchError
from mnemon_server.domain.facts import (
    FILTER_FIELDS,
    Fact,
    FactBatch,
    FactFilter,
    FactMatch,
    FactPage,
    FactQuery,
    FactReceipt,
    FactRenewal,
    FactSearchAnswer,
    FactValue,
    NamespacePage,
    PutFact,
    RenewalReceipt,
    key_violations,
    record_id,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import (
    AckLevel,
    BulkDeleteReceipt,
    SearchDiagnostics,
    View,
    WriteOutcome,
    WriteReceipt,
)
from mnemon_server.domain.validation import (
    content_violations,
    refuse,
    request_id_violations,
    revision_violations,
)
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import FieldsOnly, Fits
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, Pause, completion
from mnemon_server.services.facts.checks import (
    filter_violations,
    names_violations,
    pattern_violations,
    query_violations,
)
from mnemon_server.services.facts.deletion import delete_expired, delete_facts, removable
from mnemon_server.services.facts.filters import expired, living
from mnemon_server.services.facts.namespaces import list_namespaces
from mnemon_server.services.facts.putting import FactPutting
from mnemon_server.services.facts.stored_form import NAME, has_expired, is_fact, to_fact, to_name
from mnemon_server.services.facts.writes import REQUESTED, check_revision, remove, renew
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.reading.filter_expressions import unmet_conditions
from mnemon_server.services.reading.pages import read_page
from mnemon_server.services.reading.read_batcher import ReadBatcher
from mnemon_server.services.search.passage_queries import PassageHit, PassageQuery, fetch_vector
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.rankings import timed_search
from mnemon_server.services.search.settings import DEFAULT_SEARCH, SearchSettings
from mnemon_server.services.writing.writes import delete_matching, request_key


def _match(hit: PassageHit, query: FactQuery) -> FactMatch:
    similarity = None if hit.cosine is None else min(max(hit.cosine, 0.0), 1.0)
    return FactMatch(_fact(hit.document, query), hit.score, similarity, hit.keyword_score)


def _fields(query: FactQuery) -> FieldsOnly:
    return NAME if query.view is View.IDS else True


def _fact(document: Document, query: FactQuery) -> Fact:
    return to_name(document) if query.view is View.IDS else to_fact(document, as_text=True)


# Many names of facts at once.


Name = tuple[Namespace, str]
"""A namespace, and a key in it."""


async def by_record_id(names: Iterable[Name]) -> dict[str, Name]:
    """Each of the names once, in their order, under the id of its record; yields to other calls."""
    name_of, pause = {}, Pause()
    for name in dict.fromkeys(names):
        name_of[record_id(*name)] = name
        await pause.where_due()
    return name_of


def _to_stored(renewal: FactRenewal | None) -> int | None:
    """The expire time in microseconds; 0 if the fact does not expire, None if the fact does not exist."""
    if renewal is None:
        return None
    return to_microseconds(renewal.expires_at) if renewal.expires_at else 0


def _from_stored(name: Name, stored: int | None) -> FactRenewal | FactNotFoundError:
    if stored is None:
        return FactNotFoundError(name[1])
    return FactRenewal(from_microseconds(stored) if stored else None)


SWEEP_STEP = 500
"""How many expired facts one transaction removes; a limit, so that other writes do not wait long."""

UPDATES_MAX = 20
"""How often an update of the content is tried while other writes keep changing the fact."""


class FactStore:
    """Facts of a vault. All methods are safe to call from many tasks at once."""

    def __init__(
        self,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        search: SearchSettings = DEFAULT_SEARCH,
        clock: Clock = system_clock,
    ) -> None:
        """The vault and the embedder belong to the caller, who closes them.

        For readers, facts expire by `clock`; commits use the vault's own clock.
        """
        self._clock = clock
        self._offload = Offload(search.threads, "fact-reader")
        self._embedder = embedder
        self._passages = PassageSearch(vault.collection(FACTS), embedder.embed_query, settings=search)
        self._use(vault)

    def _use(self, vault: Vault) -> None:
        self._vault = vault
        self._read_from(vault.collection(FACTS))
        self._putting = FactPutting(vault, self._embedder)

    def _read_from(self, records: RecordEngine) -> None:
        self._records = records
        self._passages = self._passages.over(records)
        self._reads = ReadBatcher(self._read, self._offload, self._read_small)

    def over(self, vault: Vault) -> "FactStore":
        """The same store over a part of the vault. It shares the threads; close this one alone."""
        part = copy(self)
        part._use(vault)
        return part

    def at(self, records: RecordEngine, time: datetime) -> "FactStore":
        """The same store over the records of a moment. Facts that have expired since are still there."""
        part = copy(self)
        part._clock = lambda: time
        part._read_from(records)
        return part

    # Reading

    async def get(
        self,
        namespace: Namespace,
        key: str,
        *,
        versions: bool = False,
        room: Room | None = None,
    ) -> Fact:
        """The fact of this name; FactNotFoundError if it does not exist or has expired."""
        refuse(key_violations(key))
        fact = await self._get(namespace, key, versions=versions, room=room)
        if fact is None:
            raise FactNotFoundError(key)
        return fact

    async def get_many(self, names: Sequence[tuple[Namespace, str]], *, room: Room | None = None) -> FactBatch:
        """The facts of these names, 1 to 1,000, each once, in their order; see FactBatch."""
        refuse(names_violations(names))
        name_of = await by_record_id(names)
        found = await read_within(room, self._offload, self._read, [*name_of])
        named = zip(found, name_of.values(), strict=True)
        facts = tuple(fact for fact, name in named if fact and (fact.namespace, fact.key) == name)
        return FactBatch(facts, tuple(name_of[one] for one in room.left) if room else ())

    async def list(
        self, where: FactFilter, *, after: int = 0, limit: int, versions: bool = False, room: Room | None = None
    ) -> FactPage:
        """A page of the facts after position `after`, in the order in which they were first stored."""
        refuse(filter_violations(where))
        return await read_within(room, self._offload, self._read_page, where, after, limit, versions=versions)

    async def search(self, query: FactQuery, *, room: Room | None = None) -> FactSearchAnswer:
        """The facts most relevant to a text or a vector, best first; see FactQuery."""
        await fetch_vector(self._embedder, query)
        return await read_within(room, self._offload, self._find, query)

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

        Sorted by code point, with "." at the end of each label, so that a namespace and those below it come together.

        `prefix` are the first labels, `suffix` the last ones; "*" matches any label. Deeper namespaces are cut to
        `max_depth` labels, unless it is 0. `after` is the last namespace of the page before.
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
        """Stores a fact, and replaces the one with the same name.

        A replay returns the first receipt, and the fact as it is now.

        Raises:
            FactExistsError: the fact exists, and `mode` is CREATE.
            FactNotFoundError: the fact does not exist, and `mode` is UPDATE or a revision other than 0 is expected.
            RevisionMismatchError: the fact has another revision than the expected one.
            RequestIdReusedError, EmbeddingError, InvalidArgumentError, StorageFullError, StorageFailedError.
        """
        [result] = await self._putting.put([request])
        return await self._answer(request.namespace, result)

    async def put_many(self, requests: Sequence[PutFact]) -> builtins.list[WriteReceipt | MnemonError]:
        """Stores facts in their order, with one result each; an invalid one does not affect the others.

        Consecutive facts without a request id share one transaction.
        """
        results = await self._putting.put(requests)
        return [result if isinstance(result, MnemonError) else result.receipt for result in results]

    async def update_content(
        self, namespace: Namespace, key: str, content: str, others: FactValue | None = None, *, request_id: str = ""
    ) -> FactReceipt:
        """Replaces the text under "content"; the rest of the fact stays, and is searched as before.

        `others` changes other keys of the value; a key set to None is removed. FactNotFoundError if the
        fact does not exist. Other errors as in `put`.
        """
        refuse([*key_violations(key), *content_violations(content, "content"), *request_id_violations(request_id)])
        changes = {"content": content, **(others or {})}
        identity = request_key(request_id, "update content", namespace, key, content, *([others] if others else []))
        result: FactReceipt | MnemonError = FactNotFoundError(key)
        for _ in range(UPDATES_MAX):
            fact = await self._get(namespace, key)
            if fact is None:
                result = await self._putting.replay(identity, otherwise=FactNotFoundError(key))
            else:
                result = await self._putting.put_changes(fact, changes, identity)
            if not isinstance(result, RevisionMismatchError):
                break
        return await self._answer(namespace, result)

    async def renew(self, names: Sequence[tuple[Namespace, str]], *, request_id: str = "") -> RenewalReceipt:
        """Restarts the ttl of 1 to 1,000 facts, in one transaction; one result for each, in their order."""
        refuse([*names_violations(names), *request_id_violations(request_id)])
        each = [*dict.fromkeys(names)]

        def program(tx: VaultTransaction) -> str:
            return json.dumps([_to_stored(renewal) for renewal in renew(tx, each)])

        identity = request_key(request_id, "renew facts", names)
        receipt = await completion(self._vault.transact(program, request=identity))
        stored = dict(zip(each, json.loads(receipt.answer), strict=True))
        return RenewalReceipt(tuple(_from_stored(name, stored[name]) for name in names), receipt.replayed)

    async def delete(
        self,
        namespace: Namespace,
        key: str,
        *,
        expected_revision: int | None = None,
        allow_missing: bool = False,
        request_id: str = "",
        ack: AckLevel = AckLevel.DURABLE,
    ) -> WriteReceipt:
        """Removes a fact for good, with its earlier versions.

        FactNotFoundError if it does not exist; with `allow_missing` the outcome is MISSING. RevisionMismatchError if it
        has another revision than the expected one.
        """
        del ack  # A durable change is searchable at once, since facts are never indexed outside the vault.
        refuse([*key_violations(key), *revision_violations(expected_revision), *request_id_violations(request_id)])
        name = record_id(namespace, key)

        def program(tx: VaultTransaction) -> str:
            records = tx.collection(FACTS)
            [found] = records.get_documents([name])
            known = found if found is not None and is_fact(found, namespace, key, tx.now) else None
            if known is None:
                if not allow_missing:
                    raise FactNotFoundError(key)
                return "0"
            check_revision(expected_revision, key, known)
            remove(records, known, REQUESTED)
            return json.dumps(known.revision)

        identity = request_key(request_id, "delete fact", namespace, key, expected_revision, allow_missing)
        receipt = await completion(self._vault.transact(program, request=identity))
        revision = json.loads(receipt.answer)
        return receipt.of_record(key, WriteOutcome.DELETED if revision else WriteOutcome.MISSING, revision)

    async def delete_many(self, where: FactFilter, *, dry_run: bool = False, request_id: str = "") -> BulkDeleteReceipt:
        """Removes for good, in one transaction, every fact that matches; `dry_run` counts them, and removes nothing."""
        refuse([*filter_violations(where), *request_id_violations(request_id)])
        alive = removable(where, living(where, self._clock()))
        return await delete_matching(
            self._offload,
            lambda: BulkDeleteReceipt(self._records.count_documents(alive)),
            lambda: delete_facts(self._vault, where, request_id=request_id),
            unmet=unmet_conditions(where.where, self._records.has_metadata_key, FILTER_FIELDS),
            dry_run=dry_run,
        )

    async def sweep(self, now: datetime) -> int:
        """Removes the facts that have expired by `now`, SWEEP_STEP at a time; returns how many it removed."""
        removed, after = 0, 0
        while True:
            rows = await self._offload(
                self._records.list_documents, expired(now), after=after, limit=SWEEP_STEP, fields_only=True
            )
            if rows:
                after = rows[-1][0]
                removed += await delete_expired(self._vault, [document.doc_id for _, document in rows], now)
            if len(rows) < SWEEP_STEP:
                return removed

    async def aclose(self) -> None:
        """Waits for the calls that have begun; calls after it fail."""
        await self._offload.aclose()
        await asyncio.to_thread(self._passages.close)

    # Searching, on a reader's thread

    @timed_search
    def _find(self, query: FactQuery, *, fits: Fits | None = None) -> FactSearchAnswer:
        """The facts nearest to the query, or else those that match its filter; calls `fits` before it reads one."""
        refuse(query_violations(query, self._embedder.model.dimension))
        has_query = query.text.strip() or query.vector is not None
        find = self._ranked if has_query else self._listed
        return find(query, self._clock(), fits)

    def _ranked(self, query: FactQuery, now: datetime, fits: Fits | None) -> FactSearchAnswer:
        where = query.filter
        found = self._passages.find(
            replace(
                PassageQuery.of(query, living(where, now), query.offset + query.limit),
                skip=query.offset,
                min_score=query.min_score,
                broad=where.namespace is None and where.where is None,
                fields_only=_fields(query),
            ),
            fits=fits,
        )
        return FactSearchAnswer(tuple(_match(hit, query) for hit in found.hits), found.diagnostics)

    def _listed(self, query: FactQuery, now: datetime, fits: Fits | None) -> FactSearchAnswer:
        rows = self._records.list_documents(
            living(query.filter, now),
            limit=query.limit,
            skip=query.offset,
            vectors=query.view is View.FULL,
            fields_only=_fields(query),
            fits=fits,
        )
        matches = tuple(FactMatch(_fact(document, query)) for _, document in rows)
        return FactSearchAnswer(matches, SearchDiagnostics(mode=query.chosen_mode, exact=True))

    # From documents to facts

    async def _get(
        self, namespace: Namespace, key: str, *, versions: bool = False, room: Room | None = None
    ) -> Fact | None:
        name = record_id(namespace, key)
        if versions:
            [fact] = await read_within(room, self._offload, self._read, [name], versions=True)
        else:
            fact = await self._reads.get(name, room)
        return fact if fact and (fact.namespace, fact.key) == (namespace, key) else None

    def _read(
        self, record_ids: Sequence[str], *, versions: bool = False, fits: Fits | None
    ) -> builtins.list[Fact | None]:
        """The facts of these records, in their order; None for each that does not exist or has expired. Blocks."""
        now = self._clock()
        documents = self._records.get_documents(record_ids, fields_only=True, fits=fits)
        return [_shown(document, now, versions=versions) for document in documents]

    def _read_small(self, record_id: str) -> Fact | None:
        return _shown(self._records.get_small_document(record_id, fields_only=True), self._clock(), versions=False)

    def _read_page(self, where: FactFilter, after: int, limit: int, *, versions: bool, fits: Fits | None) -> FactPage:
        matching = living(where, self._clock())
        rows, position = read_page(self._records, matching, after=after, limit=limit, fields_only=True, fits=fits)
        facts = tuple(to_fact(document, versions=versions, as_text=True) for _, document in rows)
        return FactPage(facts, position, tuple(place for place, _ in rows))

    async def _answer(self, namespace: Namespace, result: FactReceipt | MnemonError) -> FactReceipt:
        """The answer to a put: its receipt, and the fact as it is now. Raises `result` if it is an error."""
        if isinstance(result, MnemonError):
            raise result
        return result if result.fact else replace(result, fact=await self._get(namespace, result.receipt.id))


def _shown(document: Document | None, now: datetime, *, versions: bool) -> Fact | None:
    """The fact of a stored document; None if it has expired."""
    if document is None or has_expired(document, now):
        return None
    return to_fact(document, versions=versions, as_text=True)
