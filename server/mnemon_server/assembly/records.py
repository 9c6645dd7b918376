"""Opens the records of a tenant."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mnemon_server.assembly.settings import backend_of, is_in_memory, vault_settings
from mnemon_server.config.settings import Settings
from mnemon_server.config.values import Verbatim
from mnemon_server.domain.access import DEFAULT_TENANT, TENANT_ID
from mnemon_server.domain.kinds import COLLECTION_OF, EMBEDDED
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines import vault_folders
from mnemon_server.engines.master_keys import MasterKeys
from mnemon_server.engines.private import tighten
from mnemon_server.engines.sqlite.upkeep.shadow import VaultModels
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.engines.temporary_folder import temporary_folder


@contextmanager
def settings_of_vaults(settings: Settings) -> Iterator[Settings]:
    """The settings with which vaults are opened until the block is left.

    In memory, the vaults are in a temporary folder, with a master key that only this process has: what a kill leaves
    behind cannot be read. Keys and tenants stay in the data folder.

    Raises:
        ConfigurationError: there is no place for that folder.
    """
    if not is_in_memory(settings):
        yield settings
        return
    with temporary_folder() as folder:
        master_key = Verbatim(secrets.token_hex(32))
        yield replace(settings, data_dir=folder, master_key=master_key, master_key_file=None, master_key_command="")


def vault_folder(settings: Settings, tenant: str = DEFAULT_TENANT) -> Path:
    """The folder of a tenant's records and of all data derived from them."""
    return vaults_folder(settings) / tenant


def vaults_folder(settings: Settings) -> Path:
    """The folder of all vaults. A server shares its lock with others for as long as it serves."""
    return vault_folders.vaults_folder(settings.data_dir)


def stored_tenants(settings: Settings) -> tuple[str, ...]:
    """The tenants that have a vault in the data folder; the default one if there is no folder yet."""
    folders = vaults_folder(settings).glob("*/")
    return tuple(sorted(folder.name for folder in folders if TENANT_ID.fullmatch(folder.name))) or (DEFAULT_TENANT,)


def open_records(
    settings: Settings, tenant: str, batcher: EmbeddingBatcher, models: VaultModels, master: MasterKeys
) -> SQLiteVault:
    """Opens the tenant's records. Blocks, and raises the same errors as SQLiteVault."""
    vault_folders.require_vault(settings.data_dir, tenant)
    folder = vault_folder(settings, tenant)
    if folder.parent.exists():
        tighten(folder.parent)
    model = batcher.model
    embedded = (COLLECTION_OF[kind] for kind in EMBEDDED)
    vault = SQLiteVault(
        folder,
        model_identity=model.identity,
        dimension=model.dimension,
        settings=vault_settings(
            settings,
            batcher,
            graphs_of={collection for collection in embedded if backend_of(settings, collection) != "chromadb"},
            models=models,
            master=master,
        ),
        embed_events=batcher.embed_blocking if settings.timeline_embeddings else None,
    )
    vault_folders.note_vault(settings.data_dir, tenant)
    return vault
