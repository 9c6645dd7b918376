"""What tenants cost a server: memory, threads and files of an open vault, time to open one, calls in turns, and memory
of a tenant whose vault is closed.

    python -m tests.bench.tenants [--tenants 200] [--open-max 64] [--rounds 3]

Every tenant has a few memories. Vaults are opened by the first call of their tenant after a restart. Then the tenants
take turns, and there are more of them than vaults may be open, so that nearly every call opens one and closes another.
Twice, all vaults are closed for being idle: in between, the server keeps what it keeps of a tenant that has called.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
import mnemon
from mnemon_server.domain.access import Role
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.services.access.keys import KeyRing

from tests.bench.processes import MnemonServer

MEMORIES = 5
AT_ONCE = 8
IDLE_S, IDLE_TIMEOUT_S = 20, 120.0
FILES_OF_NONE = 8
"""Allowance for open files that belong to no vault."""
FLAGS = ("--authentication", "api_key", "--embedding-model", "hashing")


class Held(NamedTuple):
    """What a process holds."""

    anonymous_bytes: int
    threads: int
    files: int


@click.command()
@click.option("--tenants", default=200, show_default=True, help="Tenants that take turns.")
@click.option("--open-max", default=64, show_default=True, help="Vaults that may be open at once.")
@click.option("--rounds", default=3, show_default=True, help="Calls of each tenant, in turns.")
def main(tenants: int, open_max: int, rounds: int) -> None:
    """Print what tenants cost."""
    with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder:
        asyncio.run(_measure(Path(folder), tenants, open_max, rounds))


async def _measure(folder: Path, tenants: int, open_max: int, rounds: int) -> None:
    without = _without_tenants(folder / "empty")
    secrets = await create_keys(folder / "data", tenants)
    server = MnemonServer(folder, *FLAGS, "--vaults-open-max", str(open_max))
    try:
        created = await _turns(server.address, secrets, 1, write=True)
        click.echo(f"{tenants} new tenants with {MEMORIES} memories each: {tenants / created:.1f} per second")
    finally:
        server.stop()
    server = MnemonServer(folder, *FLAGS, "--vaults-open-max", str(open_max), "--vault-idle-s", str(IDLE_S))
    try:
        server.wait_until_idle()
        with_keys = _held(server)
        await _open(server, secrets[: open_max - 1])
        warm = _once_idle(server, without)
        used = server.processor_s()
        seconds = await _turns(server.address, secrets, rounds)
        calls = tenants * rounds
        click.echo(
            f"{tenants} tenants in turns, {open_max} open: {calls / seconds:.0f} calls/s, "
            f"{(server.processor_s() - used) / calls * 1e3:.1f} ms of processor time each; {_held(server)}"
        )
        idle = _once_idle(server, without)
        key = (with_keys.anonymous_bytes - without.anonymous_bytes) / tenants
        called = (idle.anonymous_bytes - warm.anonymous_bytes) / (tenants - open_max + 1)
        click.echo(
            f"an idle tenant, all vaults closed: {key / 2**10:.1f} KiB for its key, {called / 2**10:.1f} KiB more once "
            f"it has called; {idle.threads - without.threads} threads and {idle.files - without.files} files more than "
            "a server without tenants"
        )
    finally:
        server.stop()


def _without_tenants(folder: Path) -> Held:
    """Memory, threads and files of a server before its first call."""
    folder.mkdir()
    server = MnemonServer(folder, *FLAGS)
    try:
        server.wait_until_idle()
        return _held(server)
    finally:
        server.stop()


def _once_idle(server: MnemonServer, without: Held) -> Held:
    """What it holds once it has closed all vaults, and with them their files."""
    deadline = time.monotonic() + IDLE_TIMEOUT_S
    while _held(server).files > without.files + FILES_OF_NONE:
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not close its vaults")
        time.sleep(0.5)
    return _held(server)


async def _open(server: MnemonServer, secrets: Sequence[str]) -> None:
    """Opens vaults one after the other, and prints what each costs."""
    server.wait_until_idle()
    before, used, times = _held(server), server.processor_s(), []
    for secret in secrets:
        async with mnemon.AsyncClient(server.address, api_key=secret) as client:
            await client.who_am_i()
            began = time.perf_counter()
            await client.memories.count()
            first = time.perf_counter() - began
            began = time.perf_counter()
            await client.memories.count()
            times.append(first - (time.perf_counter() - began))
    spent = server.processor_s() - used
    server.wait_until_idle()
    after, count = _held(server), len(secrets)
    click.echo(
        f"an open vault: {(after.anonymous_bytes - before.anonymous_bytes) / count / 2**20:.2f} MiB, "
        f"{(after.threads - before.threads) / count:.1f} threads, {(after.files - before.files) / count:.1f} files; "
        f"opened in {statistics.median(times) * 1e3:.1f} ms (median of {count}), "
        f"{spent / count * 1e3:.1f} ms of processor time with its calls"
    )


async def _turns(address: str, secrets: Sequence[str], rounds: int, *, write: bool = False) -> float:
    """Seconds for this many calls of every tenant, some at once; all of them must succeed."""
    queue = iter([secret for _ in range(rounds) for secret in secrets])

    async def work() -> None:
        for secret in queue:
            async with mnemon.AsyncClient(address, api_key=secret) as client:
                for number in range(MEMORIES if write else 0):
                    await client.remember(f"Ada likes the number {number}.", type="fact", user="ada")
                assert await client.memories.count() >= MEMORIES

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return time.perf_counter() - began


async def create_keys(folder: Path, tenants: int, role: Role = Role.WRITER) -> list[str]:
    """As many tenants in a data folder, and the secret of a key of each."""
    file = AccessFile(folder)
    async with KeyRing(KeyFile(file)) as ring:
        made = [await ring.create(f"tenant-{number}", "a bench", role) for number in range(tenants)]
    file.close()
    return [each.secret for each in made]


def _held(server: MnemonServer) -> Held:
    process = Path(f"/proc/{server.pid}")
    return Held(server.resident_bytes(), len(list((process / "task").iterdir())), len(list((process / "fd").iterdir())))


if __name__ == "__main__":
    main()
