"""Two servers behind Envoy that are restarted in turn under load: no call may fail, no change be missed or doubled.

python -m tests.support.restart_trial --how terminate --restarts 6

Every call may be repeated safely: it is a read, or has a request id. Four in five are those of our client, with its own
retries; the others are JSON over HTTP, which is repeated as protos/CLIENTS.md says.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from mnemon import AsyncClient, Change, ChangeType, MnemonError

from tests.support.envoy import Envoy, Upstream, certify, envoy
from tests.support.issuers import SigningKey, key_server, publish, write_identities
from tests.support.killable import KillableServer
from tests.support.ports import HeldPort

TENANTS = tuple(f"tenant-{number}" for number in range(10))
CALLS_PER_SECOND, WATCHES = 200, 50
SETTLED_S, CALL_S, CATCH_UP_S = 5.0, 120.0, 120.0
JSON_EVERY = 5
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 1.0
KEY = SigningKey("first")


@dataclass
class Result:
    """What a trial has seen."""

    calls: int = 0
    waits_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    created: dict[str, list[str]] = field(default_factory=lambda: {tenant: [] for tenant in TENANTS})
    """The ids of acknowledged memories of each tenant."""
    away_s: list[float] = field(default_factory=list)
    """How long each server was away."""
    changes: int = 0
    deliveries: int = 0

    def report(self) -> str:
        """One paragraph."""
        waits = sorted(self.waits_s)
        return (
            f"{self.calls} calls, {sum(self.failures.values())} failed {dict(self.failures) or ''}; "
            f"p50 {waits[len(waits) // 2] * 1000:.0f} ms, p99 {waits[len(waits) * 99 // 100] * 1000:.0f} ms, "
            f"longest {waits[-1]:.1f} s; {len(self.away_s)} restarts, away for {min(self.away_s):.1f} to "
            f"{max(self.away_s):.1f} s; {self.changes} changes, {self.deliveries} delivered to {WATCHES} watches, "
            "none missed, none twice"
        )


@asynccontextmanager
async def mesh(folder: Path) -> AsyncIterator[tuple[Envoy, list[KillableServer]]]:
    """Two servers with a folder each, and Envoy in front of them."""
    certify(folder)
    publish(folder, KEY)
    changes = {"tenant": "", "tenant_claim": '"tenant"', "creates_tenants": "true", "role_claim": "", "roles": ""}
    identities = write_identities(folder, "jwks.json", role='"writer"', **changes)
    servers, http = [], [HeldPort(), HeldPort()]
    for number, port in enumerate(http):
        (own := folder / f"server-{number}").mkdir()
        flags = ["--authentication", "jwt", "--identity-file", str(identities), "--http-listen", port.address]
        flags += ["--knowledge-store-backend", "local", "--log-level", "warning"]
        servers.append(KillableServer(own, *flags))
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            await asyncio.to_thread(server.start)
        login = stack.enter_context(key_server(KEY, certificate=(folder / "login.pem", folder / "login.key")))
        upstreams = [Upstream(server.address, port.address) for server, port in zip(servers, http, strict=True)]
        yield stack.enter_context(envoy(folder, *upstreams, login=login.address)), servers


class JsonClient:
    """Calls in JSON as a tenant, repeated with the same request id until they are answered."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def remember(self, content: str) -> str:
        """The id of a new memory."""
        memory = {"content": content, "scope": {"user": "ada"}}
        answer = await self._call("CreateMemory", {"memory": memory, "requestId": str(uuid4())})
        return str(answer["memory"]["memoryId"])

    async def get(self, memory_id: str) -> None:
        """Reads a memory."""
        await self._call("GetMemory", {"memoryId": memory_id})

    async def _call(self, method: str, request: Any) -> Any:
        pause_s, deadline = PAUSE_FIRST_S, time.monotonic() + CALL_S
        while True:
            try:
                answer = await self._http.post(f"/mnemon.v1.MemoryService/{method}", json=request)
                problem = answer.text
                if answer.status_code == httpx.codes.OK:
                    return answer.json()
                is_passing = answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
            except httpx.TransportError as error:
                problem, is_passing = repr(error), True
            if not is_passing or time.monotonic() > deadline:
                raise MnemonError(f"{method} as JSON: {problem}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


class Trial:
    """The load, and what came of it."""

    def __init__(self, front: Envoy, servers: list[KillableServer], report: Callable[[str], None]) -> None:
        self._front, self._servers, self._report = front, servers, report
        self._ending = asyncio.Event()
        self.result = Result()

    async def run(self, how: str, *, restarts: int) -> Result:
        """Restarts servers in turn under load. Raises AssertionError if a call failed, or a change is missing."""
        async with AsyncExitStack() as stack:
            clients = {each: await stack.enter_async_context(self._client(each)) for each in TENANTS}
            tokens = {each: KEY.sign(tenant=each) for each in TENANTS}
            https = {each: await stack.enter_async_context(self._front.http(tokens[each])) for each in TENANTS}
            seen: list[list[Change]] = [[] for _ in range(WATCHES)]
            watches = [self._watch(clients[TENANTS[number % len(TENANTS)]], seen[number]) for number in range(WATCHES)]
            watching = [asyncio.create_task(each) for each in watches]
            in_json = {tenant: JsonClient(http) for tenant, http in https.items()}
            load = asyncio.create_task(self._load(clients, in_json))
            for number in range(restarts):
                await asyncio.sleep(SETTLED_S)
                await self._restart(number % len(self._servers), how)
            await asyncio.sleep(SETTLED_S)
            self._ending.set()
            await load
            assert not self.result.failures, self.result.failures
            await self._check(clients, seen)
            for each in watching:
                assert not each.done(), each.exception()
                each.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
        return self.result

    def _client(self, tenant: str) -> AsyncClient:
        token = KEY.sign(tenant=tenant)
        return AsyncClient(self._front.address, ca_file=self._front.ca, token=token, timeout=CALL_S)

    async def _restart(self, number: int, how: str) -> None:
        server, began = self._servers[number], time.monotonic()
        await asyncio.to_thread(server.terminate if how == "terminate" else server.kill)
        await asyncio.to_thread(server.start)
        self.result.away_s.append(time.monotonic() - began)
        self._report(f"server {number} was away for {self.result.away_s[-1]:.1f} s; {self.result.calls} calls so far")

    async def _load(self, clients: dict[str, AsyncClient], in_json: dict[str, JsonClient]) -> None:
        """Begins calls at fixed moments, whatever has become of those before."""
        began, running = time.monotonic(), set()
        for number in count():
            if self._ending.is_set():
                break
            await asyncio.sleep(max(0.0, began + number / CALLS_PER_SECOND - time.monotonic()))
            tenant = TENANTS[number % len(TENANTS)]
            turn = number // len(TENANTS)
            round_of_json, is_other = divmod(turn, JSON_EVERY)
            client, turn = (clients[tenant], turn) if is_other else (in_json[tenant], round_of_json)
            task = asyncio.create_task(self._call(client, tenant, turn))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def _call(self, client: AsyncClient | JsonClient, tenant: str, turn: int) -> None:
        ids, began = self.result.created[tenant], time.monotonic()
        self.result.calls += 1
        try:
            if not ids or turn % 2 == 0:
                ids.append(await self._remember(client, f"Ada likes tea number {self.result.calls}."))
            elif isinstance(client, JsonClient):
                await client.get(ids[turn % len(ids)])
            elif turn % 4 == 1:
                await client.memories.get(ids[turn % len(ids)])
            else:
                await client.recall("What does Ada like?", user="ada")
        except MnemonError as error:
            self.result.failures[f"{type(error).__name__}: {error}"] += 1
        self.result.waits_s.append(time.monotonic() - began)

    async def _remember(self, client: AsyncClient | JsonClient, content: str) -> str:
        if isinstance(client, JsonClient):
            return await client.remember(content)
        return (await client.remember(content, user="ada")).memory_id

    async def _watch(self, client: AsyncClient, seen: list[Change]) -> None:
        async with client.watch("earliest") as watch:
            async for change in watch:
                seen.append(change)  # noqa: PERF401 -- it has no end

    async def _check(self, clients: dict[str, AsyncClient], seen: list[list[Change]]) -> None:
        for tenant, client in clients.items():
            log = [change async for change in client.changes.list()]
            created = [change.record_id for change in log if change.type is ChangeType.MEMORY_CREATED]
            assert sorted(created) == sorted(self.result.created[tenant]), tenant
            for each in seen[TENANTS.index(tenant) :: len(TENANTS)]:
                deadline = time.monotonic() + CATCH_UP_S
                while len(each) < len(log):
                    assert time.monotonic() < deadline, f"{len(each)} of {len(log)} changes of {tenant}"
                    await asyncio.sleep(0.02)
                assert each == log, tenant
                self.result.deliveries += len(each)
            self.result.changes += len(log)


async def main() -> None:
    """Runs one trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=("terminate", "kill"), default="terminate")
    parser.add_argument("--restarts", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        async with mesh(Path(folder)) as (front, servers):
            result = await Trial(front, servers, print).run(arguments.how, restarts=arguments.restarts)
    print(f"{arguments.how}: {result.report()}")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
