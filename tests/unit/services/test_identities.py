"""Who calls, by several kinds of credentials: the first one that knows decides."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mnemon_server.domain.access import EVERYBODY, Credentials, Principal, Role
from mnemon_server.domain.access.errors import TenantSuspendedError
from mnemon_server.domain.access.tenants import TenantChange
from mnemon_server.domain.errors import UnauthenticatedError
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.engines.tenant_file import TenantFile
from mnemon_server.services.access.identities import Identities
from mnemon_server.services.access.keys import KeyRing
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.access.unknown import UnknownError
from mnemon_server.services.background.listeners import Listeners

from tests.support.server import until

ADA = Principal("acme", "key:1", Role.WRITER)
SHOWN = Credentials("a secret")


class Kind:
    """A kind of credential; `finds` returns its result for what callers present."""

    wanted = "show a badge"

    def __init__(self, finds: Callable[[], Principal | None]) -> None:
        self._finds = finds
        self.listeners = Listeners()

    def identify(self, shown: Credentials) -> Principal | None:
        return self._finds()


async def test_the_first_kind_that_knows_the_caller_decides() -> None:
    bob = replace(ADA, subject="key:2")
    identities = Identities([Kind(lambda: None), Kind(lambda: ADA), Kind(lambda: bob)])
    assert await identities.authenticate(SHOWN) is ADA


async def test_a_caller_whom_no_kind_knows_is_told_what_to_show() -> None:
    identities = Identities([Kind(lambda: None)])
    with pytest.raises(UnauthenticatedError, match=r"^who calls is not known: show a badge"):
        await identities.authenticate(Credentials())
    expected = r"^the header authorization has no credential that this .*show a badge"
    with pytest.raises(UnauthenticatedError, match=expected):
        await identities.authenticate(SHOWN)


async def test_what_is_not_in_memory_is_looked_for_once() -> None:
    looks: list[str] = []

    async def look() -> None:
        looks.append("looked")
        assert len(looks) < 3, "it is looked for again and again"

    def finds() -> Principal:
        if len(looks) < found_after:
            raise UnknownError(UnauthenticatedError("it is nowhere"), look)
        return ADA

    identities = Identities([Kind(finds)])
    found_after = 1
    assert await identities.authenticate(SHOWN) is ADA
    assert looks == ["looked"]
    looks.clear()
    found_after = 9
    with pytest.raises(UnauthenticatedError, match="it is nowhere"):
        await identities.authenticate(SHOWN)
    assert looks == ["looked"]


async def test_an_authenticated_caller_is_cached_for_a_moment() -> None:
    found: list[Principal | None] = [ADA]
    identities = Identities([Kind(lambda: found[0])])
    identities.remember("a header", await identities.authenticate(SHOWN))
    assert identities.recent == {"a header": ADA}
    found[0] = None
    await until(lambda: not identities.recent)
    with pytest.raises(UnauthenticatedError):
        await identities.authenticate(SHOWN)
    assert not identities.recent


async def test_a_changed_key_or_tenant_clears_the_cached_callers(tmp_path: Path) -> None:
    file = AccessFile(tmp_path)
    async with Tenants(TenantFile(file)) as tenants, KeyRing(KeyFile(file)) as ring:
        identities = Identities([ring], keys=ring, tenants=tenants)
        shown = {}
        for tenant in ("acme", "globex"):
            await tenants.create(tenant, "")
            made = await ring.create(tenant, "a robot", Role.WRITER)
            shown[tenant] = Credentials(made.secret)
            principal = await identities.authenticate(shown[tenant])
            assert principal == made.key.principal
            identities.remember("a header", principal)
        await ring.revoke("globex", made.key.key_id)
        assert not identities.recent
        with pytest.raises(UnauthenticatedError):
            await identities.authenticate(shown["globex"])
        identities.remember("a header", await identities.authenticate(shown["acme"]))
        await tenants.change("acme", TenantChange(is_suspended=True, reason="unpaid"))
        assert not identities.recent
        with pytest.raises(TenantSuspendedError):
            await identities.authenticate(shown["acme"])
    file.close()


async def test_a_stream_goes_on_as_long_as_its_credential_means_the_same_caller(tmp_path: Path) -> None:
    found: list[Principal | None] = [ADA]
    file = AccessFile(tmp_path)
    async with Tenants(TenantFile(file)) as tenants:
        identities = Identities([Kind(lambda: found[0])], tenants=tenants)
        await tenants.create("acme", "")
        assert identities.refusal(ADA, SHOWN) is None
        for other in (replace(ADA, role=Role.READER), EVERYBODY, None):
            found[0] = other
            assert isinstance(identities.refusal(ADA, SHOWN), UnauthenticatedError)
        found[0] = ADA
        await tenants.change("acme", TenantChange(is_suspended=True, reason="unpaid"))
        assert isinstance(identities.refusal(ADA, SHOWN), TenantSuspendedError)
        with pytest.raises(TenantSuspendedError, match="unpaid"):
            await identities.authenticate(SHOWN)
    file.close()
