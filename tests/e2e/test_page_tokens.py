"""A page token is valid only in the vault that issued it."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc import aio
from mnemon import AsyncClient

from tests.support.full_vault import fill
from tests.support.rpcs import Rpc, rpcs
from tests.support.server import Connection, detail, reason, whole_server

PAGED = [
    rpc
    for rpc in rpcs()
    # Keys and tenants only exist on a server with authentication; test_access.py and test_tenants.py have their pages.
    # Versions are of one record: test_history.py has theirs.
    if "page_token" in rpc.method.input_type.fields_by_name
    and rpc.method.name not in ("ListKeys", "ListTenants")
    and not rpc.method.name.endswith("Versions")
]
WANTED: Mapping[str, dict[str, Any]] = {
    "ListFacts": {"filter": {"subtree": True}},
    "ForecastMemories": {"by_time": Timestamp(seconds=253_000_000_000)},
    "QueryWindow": {"last_days": 3_650},
    "ListMessages": {"scope": {"user": "ada"}, "conversation_id": "trip"},
}
"""What a request cannot do without."""


def asked(rpc: Rpc, **fields: Any) -> Any:
    size = "page_size" if "page_size" in rpc.method.input_type.fields_by_name else "limit"
    return rpc.request(**{size: 1, **WANTED.get(rpc.method.name, {}), **fields})


def forged(token: str) -> str:
    """The token of another position with the digest of this one."""
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    raw[0] ^= 1
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[Connection]:
    async with whole_server(folder) as server, AsyncClient(str(server.server.address)) as client:
        await fill(client)
        yield server


async def test_a_forged_token_or_one_of_another_vault_is_refused_by_every_list(tmp_path: Path) -> None:
    assert len(PAGED) >= 10
    async with filled(tmp_path / "a") as ours, filled(tmp_path / "b") as theirs:
        for rpc in PAGED:
            [page], [other] = [await rpc.call(each.channel, asked(rpc)) for each in (ours, theirs)]
            assert page.next_page_token, f"{rpc.name} has one page only"
            await rpc.call(ours.channel, asked(rpc, page_token=page.next_page_token))
            for token in (forged(page.next_page_token), other.next_page_token, "AAAAAAAAAAAAAAAA"):
                with pytest.raises(aio.AioRpcError) as raised:
                    await rpc.call(ours.channel, asked(rpc, page_token=token))
                assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT, rpc.name
                assert reason(raised.value) == "INVALID_PAGE_TOKEN"
                [violation] = detail(raised.value, error_details_pb2.BadRequest).field_violations
                assert violation.field == "page_token", rpc.name


async def test_a_token_is_valid_after_a_restart(tmp_path: Path) -> None:
    [rpc] = [each for each in PAGED if each.method.name == "ListMemories"]
    async with filled(tmp_path) as server:
        [page] = await rpc.call(server.channel, asked(rpc))
    async with whole_server(tmp_path) as server:
        [second] = await rpc.call(server.channel, asked(rpc, page_token=page.next_page_token))
        assert second.memories[0].memory_id != page.memories[0].memory_id
