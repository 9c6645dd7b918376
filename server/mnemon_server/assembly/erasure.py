"""Opens the erasure service of a vault."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import cache, partial
from typing import TYPE_CHECKING

from mnemon_server.assembly.master_keys import read_master_keys
from mnemon_server.assembly.settings import is_in_memory
from mnemon_server.assembly.stores import backups_of
from mnemon_server.config.settings import Settings
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.access_file import AccessFile, has_access_file
from mnemon_server.engines.audit_file import clear_subjects
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.erasure.access import AccessTraces
from mnemon_server.services.erasure.receipts import Sign
from mnemon_server.services.erasure.settling import Settling
from mnemon_server.services.erasure.store import Eraser
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.shared.offload import Offload

if TYPE_CHECKING:
    from mnemon_server.engines.signing_key import SigningKey


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
    rewritten = [store.applier for store in stores if store.applier is not None]
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
