"""Opens the kinds of credentials that the settings ask for."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Self

from mnemon_server.assembly.master_keys import read_master_keys
from mnemon_server.assembly.records import stored_tenants
from mnemon_server.assembly.settings import is_in_memory
from mnemon_server.config.settings import Settings
from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.endpoints.client import EndpointSettings
from mnemon_server.engines.access_file import COPY_NAME, AccessFile, has_access_file
from mnemon_server.engines.access_file import FILE_NAME as ACCESS_FILE_NAME
from mnemon_server.engines.audit_file import caller_names
from mnemon_server.engines.audit_lines import AuditLines
from mnemon_server.engines.file_stamp import Stamp, settled_stamp
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.private import refused
from mnemon_server.engines.tenant_file import TenantFile
from mnemon_server.services.access.certificates import Certificates
from mnemon_server.services.access.identities import Identities, IdentitySource, SocketOwner
from mnemon_server.services.access.identity_file import read_identity_file
from mnemon_server.services.access.issuers import KeySource
from mnemon_server.services.access.key_sets import FETCH_S, FILE_S, SET_BYTES_MAX, KeySet, fetch, read_file
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.access.tokens import Tokens, TrustedIssuer
from mnemon_server.services.background.periodic import Periodic

log = logging.getLogger(__name__)

FOLLOW_S = 1.0
"""How often the identity file is looked at."""


@asynccontextmanager
async def open_identities(settings: Settings) -> AsyncIterator[Identities | None]:
    """The credentials that calls need; None if everybody may call.

    Raises:
        ConfigurationError: what they are compared with cannot be read, or there are API keys, but the settings do not
            ask for credentials.
    """
    kinds = settings.authentication
    if not kinds:
        await asyncio.to_thread(_require_no_tenants, settings)
        yield None
        return
    async with AsyncExitStack() as stack:
        file = await asyncio.to_thread(_open_file, settings)
        stack.callback(file.close)
        tenants = Tenants(TenantFile(file))
        await tenants.adopt(stored_tenants(settings))
        await stack.enter_async_context(tenants)
        tokens, certificates = Tokens(tenants), Certificates()
        if settings.identity_file is not None:
            await stack.enter_async_context(IdentityFollower(settings.identity_file, tenants, tokens, certificates))
        keys = await _open_keys(file, settings, stack) if "api_key" in kinds else None
        sources: dict[str, IdentitySource] = {
            **({"api_key": keys} if keys else {}),
            "jwt": tokens,
            "mtls": certificates,
            "unix": SocketOwner(os.getuid()),
        }
        log_name = await asyncio.to_thread(_log_names, settings)
        chosen = [source for kind, source in sources.items() if kind in kinds]
        identities = Identities(chosen, keys=keys, tenants=tenants, certificates="mtls" in kinds, log_name=log_name)
        yield await stack.enter_async_context(identities)


async def _open_keys(file: AccessFile, settings: Settings, stack: AsyncExitStack) -> KeyRing:
    keys = await stack.enter_async_context(KeyRing(KeyFile(file)))
    if keys.is_empty and settings.authentication == ("api_key",):
        log.warning("no API key exists yet, so every call is refused; create one with `mnemon-server keys create`")
    return keys


def _log_names(settings: Settings) -> Callable[[str], str]:
    """Returns the name of a subject in both logs. Without an audit log, names differ after each start."""
    kept = settings.audit_log != "off" and not is_in_memory(settings)
    return caller_names(settings.data_dir) if kept else AuditLines(os.urandom(32)).name_of


def _open_file(settings: Settings) -> AccessFile:
    return AccessFile(settings.data_dir, read_master_keys(settings))


def _require_no_tenants(settings: Settings) -> None:
    data_dir = settings.data_dir
    try:
        if not has_access_file(data_dir):
            return
    except OSError as error:
        raise refused(error, "the file of keys") from error
    with closing(_open_file(settings)) as file:
        tenants = (each.tenant.tenant for each in TenantFile(file).read(after=0, limit=2))
        is_shared = KeyFile(file).read() or any(tenant != DEFAULT_TENANT for tenant in tenants)
    if is_shared:
        raise ConfigurationError(
            f"the data folder {str(data_dir)!r} has API keys or several tenants, but authentication is off, so "
            f"everybody could call: set --authentication, or move {ACCESS_FILE_NAME} and {COPY_NAME} away"
        )


class IdentityFollower(Periodic):
    """Makes tokens and certificates trusted as the identity file says, whenever it has changed.

    While the file is not valid, what it said last is valid.
    """

    def __init__(self, path: Path, tenants: Tenants, tokens: Tokens, certificates: Certificates) -> None:
        """Reads nothing yet."""
        super().__init__("the identity file could not be followed", interval_s=FOLLOW_S)
        self._path, self._tenants, self._tokens, self._certificates = path, tenants, tokens, certificates
        self._stamp: tuple[int, int, int] | None = None
        self._key_sets: dict[KeySource, KeySet] = {}

    async def __aenter__(self) -> Self:
        self._stamp = await asyncio.to_thread(_stamp, self._path)
        await self._apply()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        await super().__aexit__(*exception)
        await asyncio.gather(*(key_set.__aexit__(None, None, None) for key_set in self._key_sets.values()))

    async def _turn(self) -> float | None:
        # Without a thread, which would take a hundred times as long.
        if (stamp := _stamp(self._path)) != self._stamp:
            # Once for each change, so that an invalid file is not reported every second.
            self._stamp = stamp
            await self._apply()
            log.info("the identity file was read again")
        return None

    async def _apply(self) -> None:
        read = await asyncio.to_thread(read_identity_file, self._path)
        before, self._key_sets = self._key_sets, {}
        for issuer in read.issuers:
            self._key_sets[issuer.keys] = (
                before.get(issuer.keys) or self._key_sets.get(issuer.keys) or _key_set(issuer.keys)
            )
        self._tokens.trust({each.issuer: TrustedIssuer(each, self._key_sets[each.keys]) for each in read.issuers})
        self._certificates.trust(read.certificates)
        new = [key_set for source, key_set in self._key_sets.items() if source not in before]
        old = [key_set for source, key_set in before.items() if source not in self._key_sets]
        await asyncio.gather(*(key_set.__aenter__() for key_set in new))
        await asyncio.gather(*(key_set.__aexit__(None, None, None) for key_set in old))
        # Last: a full disk must not keep a caller trusted that the file no longer names.
        await self._tenants.begin(read.tenants)


def _key_set(source: KeySource) -> KeySet:
    if source.url:
        endpoint = EndpointSettings(
            name="the server of the keys", url=source.url, timeout_s=FETCH_S, answer_bytes_max=SET_BYTES_MAX
        )
        return KeySet(partial(fetch, endpoint), source.url, refresh_s=source.refresh_s, stale_s=source.stale_s)
    file = KeySetFile(source.file)
    return KeySet(file.read, str(source.file), refresh_s=FILE_S, stale_s=source.stale_s, is_unchanged=file.is_unchanged)


class KeySetFile:
    """A key set in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = None
        """The stamp of the file when it was read last."""

    def read(self) -> Any:
        """The set. Blocks. Raises KeySetError."""
        stamp = settled_stamp(self._path)
        value = read_file(self._path)
        self._stamp = stamp
        return value

    def is_unchanged(self) -> bool:
        """Whether the file is what was read last."""
        return self._stamp is not None and settled_stamp(self._path) == self._stamp


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """A stamp that differs once a file has changed; None if it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
