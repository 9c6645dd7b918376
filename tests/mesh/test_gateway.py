"""Envoy's own decisions: who may call, where a tenant's calls go, and what is refused."""

import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest
import xxhash
from mnemon.v1 import access_pb2
from mnemon.v1 import memory_pb2 as pb
from mnemon.v1.access_pb2_grpc import AccessServiceStub
from mnemon.v1.memory_pb2_grpc import MemoryServiceStub

from tests.support.envoy import ORIGIN, Upstream, certify, envoy
from tests.support.issuers import SigningKey, key_server, trusting_server
from tests.support.server import WAIT_S, failure_of, reason, until

pytestmark = pytest.mark.mesh

KEY = SigningKey("first")
PATH = "/mnemon.v1.MemoryService/"
TENANTS = [f"tenant-{number}" for number in range(16)]
TEA = pb.CreateMemoryRequest(memory=pb.Memory(content="Ada likes tea"))


@pytest.fixture(name="mesh")
async def _mesh(tmp_path: Path) -> AsyncIterator[Any]:
    """Two servers behind Envoy."""
    async with AsyncExitStack() as stack:
        servers = []
        for number in range(2):
            (own := tmp_path / str(number)).mkdir()
            opened = trusting_server(
                own,
                KEY,
                authentication=("jwt", "api_key"),
                tenant="",
                tenant_claim='"tenant"',
                creates_tenants="true",
                settings={"http_listen": "127.0.0.1:0"},
            )
            servers.append(await stack.enter_async_context(opened))
        authority = certify(tmp_path)
        login = stack.enter_context(key_server(KEY, certificate=(tmp_path / "login.pem", tmp_path / "login.key")))
        places = [Upstream(str(each.server.address), str(each.server.http_address)) for each in servers]
        front = stack.enter_context(envoy(tmp_path, *places, login=login.address))
        yield SimpleNamespace(servers=servers, front=front, authority=authority, folder=tmp_path)


def token(tenant: str, **claims: Any) -> str:
    return KEY.sign(tenant=tenant, **claims)


def home_of(tenant: str) -> int:
    """The number of the server that has a tenant."""
    return xxhash.xxh64_intdigest(tenant.encode()) % 100 // 50


async def holders(mesh: Any, tenant: str) -> list[int]:
    """The servers that have a memory of a tenant."""
    headers = (("authorization", f"Bearer {token(tenant)}"),)
    counts = [await each.memories.CountMemories(pb.CountMemoriesRequest(), metadata=headers) for each in mesh.servers]
    return [number for number, each in enumerate(counts) if each.count]


async def test_a_tenant_has_the_server_of_its_slot_in_every_form(mesh: Any) -> None:
    used = set()
    for tenant in TENANTS:
        async with mesh.front.channel(token(tenant)) as channel, mesh.front.http(token(tenant)) as client:
            await MemoryServiceStub(channel).CreateMemory(TEA)
            answer = await client.post(f"{PATH}CountMemories", json={})
        assert answer.json()["count"] == "1"
        assert await holders(mesh, tenant) == [home_of(tenant)], tenant
        used.add(home_of(tenant))
    assert used == {0, 1}


async def test_a_key_that_a_tenants_admin_makes_has_the_server_of_the_tenant_in_every_form(mesh: Any) -> None:
    used = set()
    for tenant in TENANTS:
        async with mesh.front.channel(token(tenant, groups=["owners"])) as channel:
            wanted = access_pb2.CreateKeyRequest(name="a robot", role=access_pb2.ROLE_WRITER)
            secret = (await AccessServiceStub(channel).CreateKey(wanted)).secret
        async with mesh.front.channel(secret) as channel, mesh.front.http(secret) as client:
            await MemoryServiceStub(channel).CreateMemory(TEA)
            answer = await client.post(f"{PATH}CountMemories", json={})
        assert answer.json()["count"] == "1"
        assert await holders(mesh, tenant) == [home_of(tenant)], tenant
        used.add(home_of(tenant))
    assert used == {0, 1}


async def test_a_server_refuses_a_false_key_and_one_beside_a_token(mesh: Any) -> None:
    false = f"mn_{'0' * 16}_{'A' * 43}"
    async with mesh.front.channel() as channel:
        stub = MemoryServiceStub(channel)
        for shown in ((false,), (f"{false}_acme",), (f"{false}_acme", token("acme")), (token("acme"), false)):
            headers = [("authorization", f"Bearer {each}") for each in shown]
            error = await failure_of(stub.CountMemories(pb.CountMemoriesRequest(), metadata=headers))
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED, shown


async def test_a_caller_cannot_choose_a_server_by_naming_a_tenant(mesh: Any) -> None:
    tenant = TENANTS[0]
    async with mesh.front.channel(token(tenant)) as channel, mesh.front.http(token(tenant)) as client:
        stub = MemoryServiceStub(channel)
        for other in TENANTS:
            named = [("x-mnemon-tenant", other)]
            await stub.CreateMemory(pb.CreateMemoryRequest(memory=pb.Memory(content="tea")), metadata=named)
            body = {"memory": {"content": "tea"}}
            answer = await client.post(f"{PATH}CreateMemory", json=body, headers=dict(named))
            assert answer.status_code == 200
    assert len(await holders(mesh, tenant)) == 1


async def test_envoy_refuses_a_bad_token_and_a_server_says_that_one_is_missing(mesh: Any) -> None:
    no_caller, not_for_us = (grpc.StatusCode.UNAUTHENTICATED, 401), (grpc.StatusCode.PERMISSION_DENIED, 403)
    bad = {
        SigningKey("first").sign(tenant="acme"): no_caller,
        token("acme", exp=1): no_caller,
        token("acme", aud="others"): not_for_us,
    }
    for each, expected in bad.items():
        async with mesh.front.channel(each) as channel, mesh.front.http(each) as client:
            error = await failure_of(MemoryServiceStub(channel).CountMemories(pb.CountMemoriesRequest()))
            answer = await client.post(f"{PATH}CountMemories", json={})
        assert (error.code(), answer.status_code) == expected
        assert "grpc-status-details-bin" not in dict(error.trailing_metadata() or ())
    async with mesh.front.channel() as channel, mesh.front.http() as client:
        error = await failure_of(MemoryServiceStub(channel).CountMemories(pb.CountMemoriesRequest()))
        answer = await client.post(f"{PATH}CountMemories", json={})
    assert (error.code(), reason(error)) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_only_the_named_website_may_call_from_a_browser(mesh: Any) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-grpc-web"}
    async with mesh.front.http(token("acme")) as client:
        for origin, allowed in ((ORIGIN, ORIGIN), ("https://other.example", None)):
            preflight = await client.options(f"{PATH}CountMemories", headers={"origin": origin, **asked})
            assert preflight.headers.get("access-control-allow-origin") == allowed
            for content_type in ("application/grpc-web+proto", "application/json"):
                body = b"\0\0\0\0\0" if "grpc" in content_type else b"{}"
                sent = {"origin": origin, "content-type": content_type}
                answer = await client.post(f"{PATH}CountMemories", content=body, headers=sent)
                assert answer.headers.get("access-control-allow-origin") == allowed, content_type
        assert (
            "authorization"
            in (await client.options(f"{PATH}CountMemories", headers={"origin": ORIGIN, **asked})).headers[
                "access-control-allow-headers"
            ]
        )
    refused = await _with_bad_token(mesh)
    # Otherwise a page could not read why it was refused.
    assert refused.headers["access-control-allow-origin"] == ORIGIN


async def _with_bad_token(mesh: Any) -> httpx.Response:
    async with mesh.front.http("nonsense") as client:
        return await client.post(f"{PATH}CountMemories", json={}, headers={"origin": ORIGIN})


async def test_health_is_answered_without_a_token(mesh: Any) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    async with mesh.front.channel() as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="readiness"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_nothing_else_is_reachable(mesh: Any) -> None:
    async with mesh.front.http(token("acme")) as client:
        for path in (
            "/",
            "/metrics",
            "/healthz",
            "/stats",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ):
            assert (await client.get(path)).status_code == 404, path


def test_monitoring_shows_figures_and_nothing_that_changes_envoy(mesh: Any) -> None:
    def status(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{mesh.front.monitoring}{path}", timeout=WAIT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert (status("/ready"), status("/stats/prometheus")) == (200, 200)
    assert {status(path) for path in ("/", "/quitquitquit", "/config_dump", "/ready/x", "/stats")} == {404}


async def test_a_renewed_certificate_is_used_without_a_restart(mesh: Any) -> None:
    def presented() -> str:
        host, _, port = mesh.front.address.rpartition(":")
        return ssl.get_server_certificate((host, int(port)))

    before = presented()
    pem, key = mesh.authority.issue("renewed", "dns:localhost", "ip:127.0.0.1")
    # Both files at once, as Kubernetes replaces a mounted secret: by renaming.
    key.rename(mesh.folder / "tls/tls.key")
    pem.rename(mesh.folder / "tls/tls.crt")
    await until(lambda: presented() != before)


async def test_a_call_that_its_caller_traces_is_traced_under_any_request_id(mesh: Any) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    for flags in ("01", "00"):
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-{flags}", "x-request-id": "no-uuid"}
        async with mesh.front.http(token("acme")) as client:
            answer = await client.post(f"{PATH}CountMemories", json={}, headers=headers)
        _, same, _, passed_on = answer.headers["traceparent"].split("-")
        assert (same, passed_on, answer.headers["x-request-id"]) == (trace, flags, "no-uuid")
