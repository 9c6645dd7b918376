"""Opens a tenant's vault with all its services, in the order of their dependencies."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mnemon_server.assembly.master_keys import read_master_keys
from mnemon_server.assembly.records import open_records
from mnemon_server.assembly.settings import (
    event_retention_settings,
    event_store_settings,
    history_settings,
    is_in_memory,
    search_settings,
)
from mnemon_server.assembly.stores import (
    backups_of,
    feed_readers,
    open_archive,
    open_backups,
    open_change_retention,
    open_documents,
    open_facts,
    open_feed,
    open_memories,
    open_semantic,
)
from mnemon_server.assembly.tools import make_tools
from mnemon_server.config.settings import Settings
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import Provenance
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.access_file import AccessFile, has_access_file
from mnemon_server.engines.audit_file import clear_subjects
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.bound.records import refused
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.master_keys import MasterKeys
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.upkeep.shadow import VaultModels
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.background.clock_guard import ClockGuard
from mnemon_server.services.background.gauges import VaultGauges
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.bridge.extracting import Extractors
from mnemon_server.services.conflicts.judging import Advisor, JudgeDesk
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.conversations.store import ConversationStore
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.erasure.access import AccessTraces
from mnemon_server.services.erasure.receipts import Sign
from mnemon_server.services.erasure.settling import Settling
from mnemon_server.services.erasure.store import Eraser
from mnemon_server.services.events.retention import EventRetention
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.facts.expiry import FactExpiry
from mnemon_server.services.facts.tool_namespaces import ToolNamespaces
from mnemon_server.services.grants.store import GrantStore
from mnemon_server.services.history.retention import HistoryRetention
from mnemon_server.services.history.versions import VersionStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.recall.kinds import Stores
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.recall.tokenizers import Tokenizers
from mnemon_server.services.rules.files import apply_rules_file
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.tools.registry import ToolRegistry
from mnemon_server.services.vaults import OpenVault

if TYPE_CHECKING:
    from mnemon_server.engines.signing_key import SigningKey


class Closable(Protocol):
    """A service that is closed on the event loop."""

    async def aclose(self) -> None:
        """Closes it."""


C = TypeVar("C", bound=Closable)


# Opens the erasure service of a vault.


def open_erasure(
    settings: Settings,
    tenant: str,
    vault: Vault,
    episodic: EventStore,
    stores: Sequence[DocumentStore | MemoryStore],
    batcher: EmbeddingBatcher,
    offload: Offload,
    keys: KeyRing | None,
) -> Eraser:
    """Opens the service, which completes unfinished erasures once it is entered. `keys`: the key ring of the server, if
    it is open.
    """
    access = AccessTraces(tenant, partial(_opened, settings, keys), partial(clear_subjects, settings.data_dir), offload)
    rewritten = [applier for store in stores if (applier := store.backend.applier) is not None]
    return Eraser(
        vault,
        pruning=episodic.pruning,
        settling=Settling(vault, rewritten, backups_of(settings, tenant), access, offload),
        embedder=batcher,
        sign=_signer(settings),
        offload=offload,
    )


@asynccontextmanager
async def _opened(settings: Settings, keys: KeyRing | None) -> AsyncIterator[KeyRing | None]:
    if keys is not None or not has_access_file(settings.data_dir):
        yield keys
        return
    with closing(await asyncio.to_thread(AccessFile, settings.data_dir, read_master_keys(settings))) as file:
        async with KeyRing(KeyFile(file)) as ring:
            yield ring


def _signer(settings: Settings) -> Sign:
    """A function that signs. It opens the key with its first call, since most servers never erase."""

    @cache
    def opened() -> "SigningKey":
        from mnemon_server.engines.signing_key import ERASURE_KEY, new_key, open_key

        return new_key() if is_in_memory(settings) else open_key(settings.data_dir, ERASURE_KEY)

    return lambda content: opened().sign(content)


# A vault's services as callers with bounds see them.


VIEWS_MAX = 1_000
"""The number of cached views. A view is a few small objects, built in less than a millisecond."""


class _Refusing:
    """In place of a service that knows no bounds, should a call reach it."""

    def __getattr__(self, name: str) -> Any:
        raise refused()


def views_of(vault: Vault) -> Callable[[OpenVault, Bounds], OpenVault]:
    """A function that returns the open vault within bounds."""
    views: OrderedDict[Bounds, OpenVault] = OrderedDict()
    hidden: tuple[Provenance, ...] = ()

    def within(whole: OpenVault, bounds: Bounds) -> OpenVault:
        nonlocal hidden
        if bounds.hidden != hidden:
            # Views from before a change of the quarantines are not used again, and may hold the ids of all passages.
            views.clear()
            hidden = bounds.hidden
        if bounds in views:
            views.move_to_end(bounds)
            return views[bounds]
        view = views[bounds] = _view(whole, vault, bounds)
        if len(views) > VIEWS_MAX:
            views.popitem(last=False)
        return view

    return within


def _view(whole: OpenVault, vault: Vault, bounds: Bounds) -> OpenVault:
    part, refusing = BoundVault(vault, bounds), _Refusing()
    others: dict[str, Any] = dict.fromkeys(("rules", "bridge", "archive", "backups", "erasure", "quarantine"), refusing)
    stores = Stores(
        whole.documents.over(part.collection(DOCUMENTS)),
        whole.memories.over(part.collection(MEMORIES), bounds),
        whole.facts.over(part),
        whole.semantic.over(part),
        whole.episodic.over(part.events),
    )
    recall = whole.recall.over(stores, bounds)
    tools = whole.tools.over(stores.facts, recall, bounds, bounds.owner(vault.changes.origin))
    view: OpenVault = replace(
        whole,
        documents=stores.documents,
        memories=stores.memories,
        semantic=stores.semantic,
        conflicts=whole.conflicts.over(part, bounds),
        facts=stores.facts,
        episodic=stores.events,
        feed=whole.feed.within(bounds, feed_readers(part, stores.memories)),
        tools=tools,
        recall=recall,
        conversations=whole.conversations.over(stores.events, recall),
        history=whole.history.over(part),
        page_key=bounds.digest(vault.changes.epoch, b"pages") if bounds.is_bound else whole.page_key,
        at=lambda time: _past(view, part, time),
        **others,
    )
    return view


def _past(present: OpenVault, vault: Vault, time: datetime) -> OpenVault:
    """The open vault as it was at a moment; `vault` is the part of it that the caller sees."""
    stores = Stores(
        present.documents.over(vault.past(DOCUMENTS, time)),
        present.memories.at(vault.past(MEMORIES, time), time),
        present.facts.at(vault.past(FACTS, time), time),
        present.semantic.at(vault.past(SEMANTIC, time)),
        present.episodic,
    )
    return replace(
        present,
        documents=stores.documents,
        memories=stores.memories,
        facts=stores.facts,
        semantic=stores.semantic,
        recall=present.recall.at(stores),
    )


# Reads the gauges of an open vault.


def gauges_of(
    vault: Vault,
    documents: DocumentStore,
    memories: MemoryStore,
    episodic: EventStore,
    bridge: Bridge,
    batcher: EmbeddingBatcher,
) -> Callable[[], Awaitable[VaultGauges]]:
    """Reads the gauges of a vault."""
    backends = {DOCUMENTS: documents.backend, MEMORIES: memories.backend}
    gathering = documents.waiting, memories.waiting, episodic.waiting

    def pending() -> dict[str, int]:
        counts = {collection.name: backend.pending() for collection, backend in backends.items()}
        return {name: count for name, count in counts.items() if count is not None}

    async def read() -> VaultGauges:
        return VaultGauges(
            waiting_writes=vault.waiting_writes() + sum(each.records for each in gathering),
            waiting_texts=batcher.waiting_texts,
            vectors={
                each.name: vault.collection(each).vector_usage() for each in (DOCUMENTS, MEMORIES, FACTS, SEMANTIC)
            },
            pending_changes=await asyncio.to_thread(pending),
            bridge_waiting=(await bridge.status()).queue_depth,
        )

    return read


# Opens what works on a vault's timeline: the service, the retention and the bridge.


def open_event_store(settings: Settings, vault: Vault, batcher: EmbeddingBatcher) -> EventStore:
    """Opens the timeline's service."""
    return EventStore(vault.events, vault, batcher, settings=event_store_settings(settings))


def open_event_retention(
    settings: Settings, vault: Vault, episodic: EventStore, guard: ClockGuard, offload: Offload
) -> AbstractAsyncContextManager[Any]:
    """Opens the removal of old events, which runs while entered. Does nothing if all events are kept."""
    retention = event_retention_settings(settings)
    if retention is None:
        return nullcontext()
    return EventRetention(
        vault.events,
        retention,
        guard=guard,
        pruning=episodic.pruning,
        health=episodic.health,
        offload=offload,
    )


def bridge_of(
    vault: Vault,
    semantic: SemanticStore,
    episodic: EventStore,
    extractors: Extractors,
    quarantine: QuarantineStore,
    offload: Offload,
) -> Bridge:
    """Creates the bridge, which starts when entered."""
    return Bridge(
        vault,
        semantic,
        quarantine=quarantine,
        offload=offload,
        pruning=episodic.pruning,
        extractors=extractors,
    )


def make_recall(settings: Settings, stores: Stores, batcher: EmbeddingBatcher, offload: Offload) -> RecallStore:
    """Creates the service that asks all kinds of records at once.

    Raises ConfigurationError if the namespace of the memory tools is not valid, or no tokenizer is in its folder.
    """
    namespaces = ToolNamespaces(settings.tool_namespace)
    fusion = search_settings(settings, batcher).fusion
    return RecallStore(stores, namespaces, Tokenizers(settings.tokenizer_dir), batcher, fusion, offload)


READER_THREADS = 4
TOOL_THREADS = 2
"""Parsing a hostile text of 1 MiB takes seconds. Only other texts for these threads wait for it."""
WARM_WAIT_S = 0.5
"""A small timeline is loaded within this time, and the call that opens its vault then need not be rejected."""


async def open_vault_of(
    settings: Settings,
    tenant: str,
    batcher: EmbeddingBatcher,
    models: VaultModels,
    master: MasterKeys,
    registry: ToolRegistry,
    judge: JudgeDesk | None,
    extractors: Extractors,
    keys: KeyRing | None,
) -> OpenVault:
    """Opens the tenant's vault with its services. ConfigurationError if the folder or the model is not available."""
    async with AsyncExitStack() as stack:
        vault = await asyncio.to_thread(open_records, settings, tenant, batcher, models, master)
        stack.push_async_callback(asyncio.to_thread, vault.close)
        guard, views = ClockGuard(vault), views_of(vault)
        documents = _closed(await asyncio.to_thread(open_documents, settings, tenant, vault, batcher), stack)
        memories = _closed(await asyncio.to_thread(open_memories, settings, tenant, vault, batcher), stack)
        facts = _closed(await asyncio.to_thread(open_facts, settings, vault, batcher), stack)
        await stack.enter_async_context(FactExpiry(facts, guard))
        rules, offload = await _open_rules(settings, vault, stack), _threads(stack, READER_THREADS, "event-reader")
        advisor = Advisor(vault.collection(SEMANTIC), rules, judge, offload) if judge else None
        conflicts = _closed(ConflictStore(vault, batcher, rules=rules, advisor=advisor), stack)
        semantic = _closed(open_semantic(settings, vault, batcher, rules, advisor), stack)
        archive = _closed(open_archive(settings, vault, batcher, rules), stack)
        quarantine = await asyncio.to_thread(QuarantineStore, vault, BoundVault, offload)
        await asyncio.to_thread(vault.events.wait_until_warm, WARM_WAIT_S)
        episodic = _closed(open_event_store(settings, vault, batcher), stack)
        recall = make_recall(settings, Stores(documents, memories, facts, semantic, episodic), batcher, offload)
        feed = stack.enter_context(closing(open_feed(settings, vault, memories, offload)))
        bridge = bridge_of(vault, semantic, episodic, extractors, quarantine, offload)
        if settings.bridge_enabled:
            await stack.enter_async_context(bridge)
        # After the bridge, which knows by now which changes it still has to read.
        await stack.enter_async_context(open_change_retention(settings, vault, bridge, guard, offload))
        await stack.enter_async_context(open_event_retention(settings, vault, episodic, guard, offload))
        eraser = open_erasure(settings, tenant, vault, episodic, (documents, memories), batcher, offload, keys)
        opened = OpenVault(
            documents=documents,
            memories=memories,
            semantic=semantic,
            conflicts=conflicts,
            rules=rules,
            episodic=episodic,
            bridge=bridge,
            facts=facts,
            tools=make_tools(settings, facts, recall, registry, _threads(stack, TOOL_THREADS, "tool-reader")),
            archive=archive,
            erasure=await stack.enter_async_context(eraser),
            backups=await stack.enter_async_context(open_backups(settings, tenant, vault)),
            recall=recall,
            conversations=ConversationStore(episodic, recall, offload),
            history=await _open_history(settings, vault, documents, memories, guard, stack),
            grants=await stack.enter_async_context(GrantStore(vault)),
            feed=feed,
            quarantine=quarantine,
            model=batcher.model,
            vault_id=hashlib.sha256(vault.changes.epoch).hexdigest()[:32],
            page_key=vault.changes.epoch,
            is_shadow_current=vault.is_shadow_current,
            gauges=gauges_of(vault, documents, memories, episodic, bridge, batcher),
            at=lambda time: _past(opened, vault, time),
            within=lambda bounds: views(opened, bounds),
            close=stack.pop_all().aclose,
        )
        return opened


async def _open_history(
    settings: Settings,
    vault: Vault,
    documents: DocumentStore,
    memories: MemoryStore,
    guard: ClockGuard,
    stack: AsyncExitStack,
) -> VersionStore:
    """The earlier versions of records, and the removal of old ones; the stack closes both."""
    appliers = {RecordKind.DOCUMENT: documents.backend.applier, RecordKind.MEMORY: memories.backend.applier}
    history = _closed(VersionStore(vault, appliers), stack)
    await stack.enter_async_context(HistoryRetention(vault, history_settings(settings).keep_for, guard))
    return history


async def _open_rules(settings: Settings, vault: Vault, stack: AsyncExitStack) -> RuleStore:
    """The merge rules, including the rules file of the settings; the stack closes them."""
    rules = _closed(RuleStore(vault), stack)
    if settings.rules_file is not None:
        await apply_rules_file(rules, settings.rules_file)
    return rules


def _closed(store: C, stack: AsyncExitStack) -> C:
    """The store, which the stack closes."""
    stack.push_async_callback(store.aclose)
    return store


def _threads(stack: AsyncExitStack, count: int, name: str) -> Offload:
    """Threads for reads, which the stack closes."""
    return _closed(Offload(count, name), stack)
