"""Assembles the server. Everything that holds resources is closed in reverse order."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import grpc

from mnemon_server.assembly.audit import open_audit
from mnemon_server.assembly.embedder import Report, batch_tokens_max, open_configured_embedder
from mnemon_server.assembly.extractors import open_extractors
from mnemon_server.assembly.identities import open_identities
from mnemon_server.assembly.judge import open_judge
from mnemon_server.assembly.master_keys import read_master_keys
from mnemon_server.assembly.records import settings_of_vaults, stored_tenants, vaults_folder
from mnemon_server.assembly.settings import accounts_of
from mnemon_server.assembly.shadow import open_shadow, vault_models
from mnemon_server.assembly.tools import open_registry
from mnemon_server.assembly.tracing import open_tracing
from mnemon_server.assembly.vault import open_vault_of
from mnemon_server.config.settings import Settings
from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.errors import RecordDamagedError, StorageFailedError
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.backups.folders import discard_unfinished
from mnemon_server.engines.folder import FolderLock, LinkError
from mnemon_server.engines.vault_folders import (
    encrypt_keys,
    finish_replacements,
    remove_vault,
    size_of,
    unfinished_tenants,
)
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.housekeeping import ErasureKeeper, ShadowKeeper, SpaceMeter, TenantRemover
from mnemon_server.services.limits.accounts import Accounts
from mnemon_server.services.vaults import OpenVault, VaultPool
from mnemon_server.transport.server import GrpcServer

WAITING_TEXTS_MAX = 65_536
"""Three times the number of passages in the largest bulk message."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def running_server(
    settings: Settings,
    *,
    report: Report,
    private: bool = False,
    extra_handlers: tuple[grpc.GenericRpcHandler, ...] = (),
) -> AsyncIterator[GrpcServer]:
    """Serves until the block is left, then shuts down gracefully.

    Args:
        settings: what to serve, and where.
        report: called with a sentence before each slow step of the start.
        private: only this program reaches the address, so that it needs no credential even if the folder has API keys.
        extra_handlers: further services.

    Raises:
        ConfigurationError: the address, the data folder or the model is not available; the message says how to fix it.
    """
    async with AsyncExitStack() as stack:
        # Bind the address before opening vaults: a second server on the same address must not touch the data.
        identities = None if private else await stack.enter_async_context(open_identities(settings))
        accounts = accounts_of(settings)
        audit = await stack.enter_async_context(open_audit(settings)) if identities else None
        tracing = await stack.enter_async_context(open_tracing(settings))
        of_vaults = stack.enter_context(settings_of_vaults(settings))
        folder = vaults_folder(of_vaults)
        server = GrpcServer(
            of_vaults,
            identities=identities,
            accounts=accounts,
            audit=audit,
            tracing=tracing,
            extra_handlers=extra_handlers,
        )
        await stack.enter_async_context(server)
        vaults = await stack.enter_async_context(
            open_vaults(of_vaults, report=report, accounts=accounts, keys=identities.keys if identities else None)
        )
        await _open_default(vaults, is_shared=identities is not None)
        if identities and (tenants := identities.tenants):
            accounts.set_quotas(tenants.quotas)
            tenants.listeners.append(lambda: accounts.set_quotas(tenants.quotas))
            await stack.enter_async_context(TenantRemover(tenants, vaults, partial(remove_vault, folder)))
        await stack.enter_async_context(SpaceMeter(accounts, vaults, lambda tenant: size_of(folder / tenant)))
        await stack.enter_async_context(ErasureKeeper(vaults, partial(unfinished_tenants, folder)))
        if settings.embedding_shadow_model:
            await stack.enter_async_context(ShadowKeeper(vaults, partial(stored_tenants, settings)))
        stack.push_async_callback(server.shut_down)
        await server.serve(vaults)
        yield server


async def _open_default(vaults: VaultPool, *, is_shared: bool) -> None:
    """Opens the default vault, so that problems with the data folder appear at the start, not at the first call.

    On a server with several tenants, damage in this vault does not affect the others.
    """
    try:
        async with vaults.use(DEFAULT_TENANT):
            pass
    except (RecordDamagedError, StorageFailedError, LinkError) as error:
        if not is_shared:
            raise
        log.error("the vault of the tenant %s is not served, all others are: %s", DEFAULT_TENANT, error)  # noqa: TRY400


@asynccontextmanager
async def open_vaults(
    settings: Settings, *, report: Report, accounts: Accounts | None = None, keys: KeyRing | None = None
) -> AsyncIterator[VaultPool]:
    """The vaults of all tenants, and the embedder that they share. `settings` come from `settings_of_vaults`;
    `accounts` limit and count what tenants embed; `keys` are the API keys that calls show.
    """
    async with AsyncExitStack() as stack:
        # Before the model is loaded, so that invalid keys and tools are reported at once.
        master = await asyncio.to_thread(read_master_keys, settings)
        registry = await stack.enter_async_context(open_registry(settings))
        judge = await stack.enter_async_context(open_judge(settings, report))
        extractors = await stack.enter_async_context(open_extractors(settings, report))
        embedder = await asyncio.to_thread(open_configured_embedder, settings, report)
        stack.callback(embedder.close)
        if (shadow := await asyncio.to_thread(open_shadow, settings)) is not None:
            stack.callback(shadow.close)
        models = vault_models(embedder, shadow)
        # Vaults come and go. As long as this server serves, no command may change the closed ones.
        folder = vaults_folder(settings)
        await asyncio.to_thread(finish_replacements, folder)
        place = stack.enter_context(FolderLock(folder, shared=True)).place()
        await asyncio.to_thread(encrypt_keys, folder, master)
        if settings.backup_dir:
            await asyncio.to_thread(discard_unfinished, settings.backup_dir)
        batcher = EmbeddingBatcher(
            embedder,
            batch_tokens_max=batch_tokens_max(settings),
            cache_entries_max=settings.embedding_cache_entries,
            waiting_texts_max=WAITING_TEXTS_MAX,
            meter=accounts,
        )
        await stack.enter_async_context(batcher)

        async def open_vault(tenant: str) -> OpenVault:
            # Without this check, an empty vault would be created at the old path.
            await asyncio.to_thread(place.require)
            return await open_vault_of(
                settings, tenant, batcher.of(tenant), models, master, registry, judge, extractors, keys
            )

        pool = VaultPool(open_vault, open_max=settings.vaults_open_max, idle_s=settings.vault_idle_s)
        yield await stack.enter_async_context(pool)


@asynccontextmanager
async def open_document_store(settings: Settings, *, report: Report) -> AsyncIterator[DocumentStore]:
    """The knowledge store for these settings, with its engines."""
    with settings_of_vaults(settings) as of_vaults:
        async with open_vaults(of_vaults, report=report) as vaults, vaults.use(DEFAULT_TENANT) as vault:
            yield vault.documents
