"""Every method through Envoy, over gRPC and in every form of HTTP: the same as directly."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from grpc import aio

from tests.e2e.test_http_forms import CALLABLE, HTTP, likened, requests
from tests.support.envoy import Upstream, certify, envoy
from tests.support.http_calls import Outcome, call_grpc, call_http, forms_of
from tests.support.issuers import SigningKey, key_server, trusting_server
from tests.support.rpc_fuzzing import WITHOUT_END
from tests.support.rpcs import Rpc, rpcs

pytestmark = pytest.mark.mesh

KEY = SigningKey("first")
TOKEN = KEY.sign(groups=["owners"], tenant="acme")
ENVOYS = 1 + max(len(forms_of(rpc)) for rpc in CALLABLE)
"""One for gRPC, and one for each form."""


@asynccontextmanager
async def servers(folder: Path, count: int) -> AsyncIterator[list[Any]]:
    """That many servers that trust the token and have seen nothing yet."""
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            (own := folder / str(number)).mkdir()
            opened = trusting_server(
                own, KEY, tenant="", tenant_claim='"tenant"', creates_tenants="true", settings=HTTP
            )
            made.append(await stack.enter_async_context(opened))
        yield made


@asynccontextmanager
async def behind_envoy(folder: Path, *connections: Any) -> AsyncIterator[list[Any]]:
    """For each server, an Envoy in front of it."""
    async with AsyncExitStack() as stack:
        certify(folder)
        login = stack.enter_context(key_server(KEY, certificate=(folder / "login.pem", folder / "login.key")))
        made = []
        for connection in connections:
            upstream = Upstream(str(connection.server.address), str(connection.server.http_address))
            made.append(stack.enter_context(envoy(folder, upstream, login=login.address)))
        yield made


async def outcome_over(
    channel: aio.Channel, client: httpx.AsyncClient, way: int, rpc: Rpc, request: Any
) -> tuple[str, Outcome]:
    """The outcome through Envoy over gRPC, or in another form of each method for each `way`."""
    first = rpc.method.name in WITHOUT_END
    if not way:
        return "gRPC", await call_grpc(channel, rpc, request, first=first)
    forms = forms_of(rpc)
    form = forms[way % len(forms)]
    return form, await call_http(client, rpc, request, form, first=first)


async def test_the_same_requests_have_the_same_outcomes_through_envoy_as_directly(tmp_path: Path) -> None:
    seen, codes = set(), set()
    async with AsyncExitStack() as stack:
        direct, *others = await stack.enter_async_context(servers(tmp_path, 1 + ENVOYS))
        envoys = await stack.enter_async_context(behind_envoy(tmp_path, *others))
        ways = [
            (await stack.enter_async_context(each.channel(TOKEN)), await stack.enter_async_context(each.http(TOKEN)))
            for each in envoys
        ]
        for rpc, request in requests(seed=7):
            first = rpc.method.name in WITHOUT_END
            expected = likened(await call_grpc(direct.channel, rpc, request, first=first, token=TOKEN))
            codes.add(expected[0])
            for way, (channel, client) in enumerate(ways):
                form, outcome = await outcome_over(channel, client, way, rpc, request)
                assert likened(outcome) == expected, (rpc.name, form, request, outcome)
                seen.add((rpc.name, form))
    assert {(rpc.name, form) for rpc in CALLABLE for form in ("gRPC", *forms_of(rpc))} <= seen
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"} <= codes


async def test_streams_of_requests_pass_over_grpc_and_are_refused_elsewhere(tmp_path: Path) -> None:
    sending = [rpc for rpc in rpcs() if rpc.method.client_streaming]
    async with AsyncExitStack() as stack:
        direct, other = await stack.enter_async_context(servers(tmp_path, 2))
        [front] = await stack.enter_async_context(behind_envoy(tmp_path, other))
        channel = await stack.enter_async_context(front.channel(TOKEN))
        client = await stack.enter_async_context(front.http(TOKEN))
        for rpc in sending:
            expected = likened(await call_grpc(direct.channel, rpc, rpc.request(), token=TOKEN))
            assert likened(await call_grpc(channel, rpc, rpc.request())) == expected, rpc.name
            for form in forms_of(rpc):
                outcome = await call_http(client, rpc, rpc.request(), form)
                if "grpc-web" in form and "json" not in form:
                    # Envoy makes gRPC of it, with a stream of one request.
                    assert likened(outcome) == expected, (rpc.name, form)
                else:
                    assert (outcome.code, outcome.reason) == ("UNIMPLEMENTED", "UNIMPLEMENTED"), form
    assert sending
