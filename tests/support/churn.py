"""Tenants that come and go under mixed load, on a server whose memory, files and threads must stay flat.

    python -m tests.support.churn [--tenants 200] [--minutes 60] [--seed 1]

More tenants than vaults may be open take turns: they write, search and delete, open streams and cancel them, and make
keys, use and revoke them. What the server holds is compared between turns, when no call is open.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import mnemon
from grpc import aio
from mnemon.v1 import changes_pb2, changes_pb2_grpc, knowledge_store_pb2, knowledge_store_pb2_grpc
from mnemon_server.domain.access import Role
from mnemon_server.engines.access_file import AccessFile
from mnemon_server.engines.key_file import KeyFile
from mnemon_server.services.access.keys import KeyRing

from tests.support.access import bearer, key_id
from tests.support.server import server_process, until

AT_ONCE = 4
OPEN_MAX, IDLE_S = 16, 1.0
"""Fewer vaults than tenants may be open, and not for long, so that they are opened and closed all the time."""
RECORDS = 20
"""Names that a tenant's records take in turns: what is stored stays nearly the same."""
FILES_MORE, THREADS_MORE, MIB_MORE = 4, 4, 24
"""What may be held beyond the most of the first third: pools of threads and caches are filled by and by. A leak shows
with each tenant, key or stream."""


class Held(NamedTuple):
    """What a process holds while no client is connected and no vault is open."""

    files: int
    threads: int
    mib: float
    """Memory, without files of the page cache."""


async def held_at_rest(pid: int, folder: Path) -> Held:
    """What a process holds, once the last vault of a data folder and the connections of former clients are closed."""
    process, before = Path(f"/proc/{pid}"), -1

    def is_at_rest() -> bool:
        nonlocal before
        last, (before, vaults) = before, _files(process, folder)
        return not vaults and last == before

    await until(is_at_rest)
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return Held(before, int(status["Threads"]), int(status["RssAnon"].split()[0]) / 1024)


def _files(process: Path, folder: Path) -> tuple[int, int]:
    """How many files a process has open, and how many of them are vaults of this data folder.

    Tests that ran before may have left other vaults to the garbage collector.
    """
    files, inside = list[Path](), folder.resolve()
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            files.append(link.readlink())
    return len(files), sum(each.name == "records.db" and each.is_relative_to(inside) for each in files)


async def make_tenants(folder: Path, count: int) -> list[str]:
    """The secrets of the admins of new tenants."""
    file = AccessFile(folder)
    async with KeyRing(KeyFile(file)) as ring:
        made = [await ring.create(f"tenant-{number}", "churn", Role.ADMIN) for number in range(count)]
    file.close()
    return [each.secret for each in made]


class Churn:
    """The load on one server."""

    def __init__(self, address: str, secrets: list[str], seed: int, *, at_once: int = AT_ONCE) -> None:
        self._address, self._secrets = address, secrets
        self._rng, self._at_once = random.Random(seed), at_once
        self._steps = (
            self._document,
            self._memory,
            self._fact,
            self._event,
            self._cancelled_watch,
            self._cancelled_import,
            self._key,
        )

    async def turn(self) -> int:
        """Every tenant does one thing of each kind, some tenants at once, in an order of chance. Returns how many."""
        work = [(step, secret) for step in self._steps for secret in self._secrets]
        self._rng.shuffle(work)
        left = iter(work)

        async def worker() -> None:
            for step, secret in left:
                await step(secret)

        async with asyncio.TaskGroup() as workers:
            for _ in range(self._at_once):
                workers.create_task(worker())
        return len(work)

    def _client(self, secret: str) -> mnemon.AsyncClient:
        return mnemon.AsyncClient(self._address, api_key=secret)

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[aio.Channel]:
        async with aio.insecure_channel(self._address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            yield channel

    def _name(self) -> str:
        return f"record-{self._rng.randrange(RECORDS)}"

    async def _document(self, secret: str) -> None:
        name = self._name()
        async with self._client(secret) as client:
            await client.documents.put(name, f"Ada sits by window {name}.")
            assert (await client.documents.search("Where does Ada sit?")).results
            await client.documents.delete(name, allow_missing=True)

    async def _memory(self, secret: str) -> None:
        async with self._client(secret) as client:
            made = await client.remember(f"Ada dislikes {self._name()}.", type="preference", user="ada")
            assert (await client.recall("What does Ada dislike?")).results
            await client.memories.delete(made.memory_id)

    async def _fact(self, secret: str) -> None:
        name = self._name()
        async with self._client(secret) as client:
            await client.facts.put(("users", "ada"), name, {"row": 12})
            assert (await client.facts.get(("users", "ada"), name)).value == {"row": 12}
            await client.facts.delete(("users", "ada"), name)

    async def _event(self, secret: str) -> None:
        async with self._client(secret) as client:
            await client.timeline.add("conversation", f"Ada asked for {self._name()}.", user="ada")
            assert [each async for each in client.timeline.list(user="ada")]

    async def _cancelled_watch(self, secret: str) -> None:
        async with self._channel() as channel:
            stub: Any = changes_pb2_grpc.ChangeServiceStub(channel)
            watch = stub.WatchChanges(changes_pb2.WatchChangesRequest(), metadata=bearer(secret))
            assert (await watch.read()).HasField("started")
            watch.cancel()

    async def _cancelled_import(self, secret: str) -> None:
        async with self._channel() as channel:
            stub: Any = knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel)
            call = stub.BulkIndexDocuments(metadata=bearer(secret))
            document = knowledge_store_pb2.Document(doc_id=self._name(), content="Ada was here.")
            request = knowledge_store_pb2.IndexDocumentRequest(document=document)
            await call.write(knowledge_store_pb2.BulkIndexDocumentsRequest(requests=[request]))
            assert (await call.read()).results
            call.cancel()

    async def _key(self, secret: str) -> None:
        async with self._client(secret) as admin:
            made = await admin.keys.add("churn", role="reader")
            async with self._client(made.secret) as reader:
                assert (await reader.who_am_i()).role is mnemon.Role.READER
            await admin.keys.revoke(key_id(made.secret))


def check_flat(samples: Sequence[Held]) -> None:
    """Raises AssertionError if more was held after the first third of the turns than within it."""
    first = max(1, len(samples) // 3)
    before, after = (Held(*map(max, zip(*part, strict=True))) for part in (samples[:first], samples[first:]))
    assert after.files <= before.files + FILES_MORE, samples
    assert after.threads <= before.threads + THREADS_MORE, samples
    assert after.mib <= before.mib + MIB_MORE, samples


async def churn(
    folder: Path, *, tenants: int, seed: int, goes_on: Callable[[int], bool], report: Callable[[str], None]
) -> list[Held]:
    """What the server holds after each turn, for as long as `goes_on` says so of the number of turns."""
    secrets = await make_tenants(folder, tenants)
    flags = ("--authentication", "api_key", "--knowledge-store-backend", "local", "--log-level", "warning")
    with server_process(folder, *flags, *(f"--vaults-open-max={OPEN_MAX}", f"--vault-idle-s={IDLE_S}")) as server:
        load, samples = Churn(server.address(), secrets, seed), list[Held]()
        while goes_on(len(samples)):
            await load.turn()
            samples.append(await held_at_rest(server.process.pid, folder))
            report(f"turn {len(samples)}: {samples[-1]}")
        assert "Traceback" not in server.output, server.output
    return samples


def main() -> None:
    """Runs a long trial."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes

    def goes_on(turns: int) -> bool:
        return turns < 3 or time.monotonic() < end

    def report(line: str) -> None:
        print(line, flush=True)  # noqa: T201

    with tempfile.TemporaryDirectory() as folder:
        trial = churn(Path(folder), tenants=arguments.tenants, seed=arguments.seed, goes_on=goes_on, report=report)
        check_flat(asyncio.run(trial))


if __name__ == "__main__":
    main()
