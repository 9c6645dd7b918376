"""Opens a tenant's vault with all its services, in the order of their dependencies."""

import asyncio
import hashlib
from contextlib import AsyncExitStack

from mnemon_server.assembly.bound import views_of
from mnemon_server.assembly.erasure import open_erasure
from mnemon_server.assembly.events import make_bridge, open_event_retention, open_event_store
from mnemon_server.assembly.gauges import gauges_of
from mnemon_server.assembly.records import open_records
from mnemon_server.assembly.stores import (
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
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.master_keys import MasterKeys
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.upkeep.shadow import VaultModels
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.conflicts.judging import Advisor, JudgeDesk
from mnemon_server.services.conflicts.service import ConflictStore
from mnemon_server.services.facts.expiry import FactExpiry
from mnemon_server.services.rules.files import apply_rules_file
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.shared.clock_guard import ClockGuard
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.tools.registry import ToolRegistry
from mnemon_server.services.vaults import OpenVault

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
    keys: KeyRing | None,
) -> OpenVault:
    """Opens the tenant's vault with its services. ConfigurationError if the folder or the model is not available."""
    async with AsyncExitStack() as stack:
        vault = await asyncio.to_thread(open_records, settings, tenant, batcher, models, master)
        stack.push_async_callback(asyncio.to_thread, vault.close)
        guard, views = ClockGuard(vault), views_of(vault)
        documents = await asyncio.to_thread(open_documents, settings, tenant, vault, batcher)
        stack.push_async_callback(documents.aclose)
        memories = await asyncio.to_thread(open_memories, settings, tenant, vault, batcher)
        stack.push_async_callback(memories.aclose)
        facts = await asyncio.to_thread(open_facts, settings, vault, batcher)
        stack.push_async_callback(facts.aclose)
        await stack.enter_async_context(FactExpiry(facts, guard))
        tools = make_tools(settings, facts, registry, _threads(stack, TOOL_THREADS, "tool-reader"))
        rules = await _open_rules(settings, vault, stack)
        offload = _threads(stack, READER_THREADS, "event-reader")
        advisor = Advisor(vault.collection(SEMANTIC), rules, judge, offload) if judge else None
        conflicts = ConflictStore(vault, batcher, rules=rules, advisor=advisor)
        stack.push_async_callback(conflicts.aclose)
        semantic = open_semantic(settings, vault, batcher, rules, advisor)
        stack.push_async_callback(semantic.aclose)
        archive = open_archive(settings, vault, batcher, rules)
        stack.push_async_callback(archive.aclose)
        await asyncio.to_thread(vault.events.wait_until_warm, WARM_WAIT_S)
        episodic = open_event_store(settings, vault, batcher)
        stack.push_async_callback(episodic.aclose)
        feed, bridge = open_feed(settings, vault, memories, offload), make_bridge(vault, semantic, offload)
        stack.callback(feed.close)
        if settings.bridge_enabled:
            await stack.enter_async_context(bridge)
        # After the bridge, which knows by now which changes it still has to read.
        await stack.enter_async_context(open_change_retention(settings, vault, bridge, guard, offload))
        await stack.enter_async_context(open_event_retention(settings, vault, episodic, guard, offload))
        eraser = open_erasure(settings, tenant, vault, episodic, (documents, memories), batcher, offload, keys)
        erasure = await stack.enter_async_context(eraser)
        opened = OpenVault(
            documents=documents,
            memories=memories,
            semantic=semantic,
            conflicts=conflicts,
            rules=rules,
            episodic=episodic,
            bridge=bridge,
            facts=facts,
            tools=tools,
            archive=archive,
            backups=await stack.enter_async_context(open_backups(settings, tenant, vault)),
            erasure=erasure,
            feed=feed,
            model=batcher.model,
            vault_id=hashlib.sha256(vault.changes.epoch).hexdigest()[:32],
            page_key=vault.changes.epoch,
            is_shadow_current=vault.is_shadow_current,
            gauges=gauges_of(vault, documents, memories, episodic, bridge, batcher),
            within=lambda bounds: views(opened, bounds),
            close=stack.pop_all().aclose,
        )
        return opened


async def _open_rules(settings: Settings, vault: Vault, stack: AsyncExitStack) -> RuleStore:
    """The merge rules, including the rules file of the settings; the stack closes them."""
    rules = RuleStore(vault)
    stack.push_async_callback(rules.aclose)
    if settings.rules_file is not None:
        await apply_rules_file(rules, settings.rules_file)
    return rules


def _threads(stack: AsyncExitStack, count: int, name: str) -> Offload:
    """Threads for reads, which the stack closes."""
    offload = Offload(count, name)
    stack.push_async_callback(offload.aclose)
    return offload
