"""What a server reports about itself, and that it is true."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import mnemon
import pytest
from mnemon import Capability
from mnemon.v1 import common_pb2
from mnemon.v1 import server_pb2 as pb
from mnemon_server import __version__

from tests.support.command import run, run_json
from tests.support.server import bare_server, failure_of, reason, whole_server

DEFAULTS = {
    Capability.DURABLE,
    Capability.ABSOLUTE_SCORES,
    Capability.RERANKING,
    Capability.TIMELINE_VECTORS,
    Capability.BRIDGE,
}


async def info_of(folder: Path, **settings: Any) -> mnemon.ServerInfo:
    async with whole_server(folder, **settings) as server, mnemon.AsyncClient(str(server.server.address)) as client:
        return await client.server_info()


async def test_a_server_reports_what_a_client_may_rely_on(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connected:
        told = await connected.info.GetServerInfo(pb.GetServerInfoRequest())
    limits = told.limits
    assert (told.version, told.api_revision) == (__version__, 1)
    assert (limits.message_bytes, limits.answer_bytes, limits.content_bytes) == (4 << 20, 3 << 20, 1 << 20)
    assert (limits.bulk_requests, limits.page_size, limits.unary_calls, limits.streams) == (1_000, 1_000, 512, 256)
    assert (limits.default_deadline.seconds, limits.change_retention.ToSeconds()) == (60, 7 * 86_400)
    assert told.embedding_model == common_pb2.EmbeddingModel(
        name="hashing", revision="1", precision="fp32", dimension=64
    )


async def test_the_settings_determine_capabilities_and_limits(tmp_path: Path) -> None:
    plain = await info_of(tmp_path / "plain")
    other = await info_of(
        tmp_path / "other",
        fusion="rrf",
        search_reranking=False,
        timeline_embeddings=False,
        bridge_enabled=False,
        max_message_mib=8,
        unary_calls_max=7,
        streams_max=9,
        default_deadline_s=1.5,
        change_retention_days=0.5,
    )
    assert set(plain.capabilities) == DEFAULTS
    assert set(other.capabilities) == {Capability.DURABLE}
    limits = other.limits
    assert (limits.message_bytes, limits.unary_calls, limits.streams) == (8 << 20, 7, 9)
    assert (limits.default_deadline_s, limits.change_retention_s) == (1.5, 43_200.0)
    in_memory = await info_of(tmp_path / "nothing", knowledge_store_backend="in_memory")
    assert set(in_memory.capabilities) == DEFAULTS - {Capability.DURABLE}


async def test_a_vault_keeps_its_unique_id_over_a_restart(tmp_path: Path) -> None:
    first, again = await info_of(tmp_path / "one"), await info_of(tmp_path / "one")
    other = await info_of(tmp_path / "other")
    assert first.vault_id == again.vault_id != other.vault_id
    assert len(first.vault_id) == len(other.vault_id) == 32


async def test_a_text_of_the_stated_size_is_accepted_and_no_larger_one(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connected, mnemon.AsyncClient(str(connected.server.address)) as client:
        size = (await client.server_info()).limits.content_bytes
        await client.documents.put("a", "x" * size)
        with pytest.raises(mnemon.InvalidArgumentError):
            await client.documents.put("b", "x" * (size + 1))


async def test_a_starting_server_says_so() -> None:
    async with bare_server() as connected:
        error = await failure_of(connected.info.GetServerInfo(pb.GetServerInfoRequest()))
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_the_command_line_shows_it(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connected:
        address = str(connected.server.address)
        shown = (await asyncio.to_thread(run, address, "info")).stdout
        [told] = await asyncio.to_thread(run_json, address, "info")
    assert (told["version"], told["limits"]["message_bytes"]) == (__version__, 4 << 20)
    assert set(told["capabilities"]) == DEFAULTS
    for part in (__version__, "revision 1", told["vault_id"], "64 dimensions", "4 MiB", "absolute scores", "7 days"):
        assert part in shown
