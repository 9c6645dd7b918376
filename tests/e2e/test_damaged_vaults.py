"""Damage in the vault of one tenant is told to that tenant; all others are served."""

from collections.abc import Callable
from pathlib import Path

import mnemon
import pytest
from mnemon import AsyncClient

from tests.support.access import guarded_server, make_key
from tests.support.server import health_of

DEFAULT, ACME = "default", "acme"


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "first page": (lambda vault: flip(vault / "records.db", 1_000), "page 1 of records.db"),
    "key": (lambda vault: (vault / "vault.key").write_bytes(b"x" * 100), "vault.key is damaged"),
    "no key": (lambda vault: (vault / "vault.key").unlink(), "vault.key, which is missing"),
}
"""What happens to the files of a vault, and what its callers are told."""


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """The secret of an admin of each of two tenants."""
    return {tenant: make_key(tmp_path, "admin", tenant=tenant) for tenant in (DEFAULT, ACME)}


async def fill(folder: Path, keys: dict[str, str], **settings: object) -> None:
    async with guarded_server(folder, **settings) as server:
        for key in keys.values():
            async with AsyncClient(str(server.server.address), api_key=key) as client:
                await client.documents.put("one", "Ada likes tea.")


@pytest.mark.parametrize("case", DAMAGES)
@pytest.mark.parametrize("tenant", [DEFAULT, ACME])
async def test_only_the_tenant_with_the_damage_is_refused(
    tmp_path: Path, keys: dict[str, str], tenant: str, case: str
) -> None:
    damage, told = DAMAGES[case]
    vault = tmp_path / "tenants" / tenant
    await fill(tmp_path, keys)
    damage(vault)
    async with guarded_server(tmp_path) as server:
        assert await health_of(server) == "SERVING"
        for each, key in keys.items():
            async with AsyncClient(str(server.server.address), api_key=key) as client:
                if each != tenant:
                    assert (await client.documents.get("one")).content == "Ada likes tea."
                    continue
                with pytest.raises(mnemon.RecordDamagedError, match=told):
                    await client.documents.get("one")
