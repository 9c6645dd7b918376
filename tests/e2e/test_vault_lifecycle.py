"""An idle vault is closed, releases its folder, and opens again unchanged at the next call."""

from pathlib import Path

from mnemon.v1 import changes_pb2, memory_pb2
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.folder import FolderLock

from tests.support.server import health_of, until, whole_server


def is_free(folder: Path) -> bool:
    """Whether no process holds the folder."""
    try:
        FolderLock(folder).close()
    except ConfigurationError:
        return False
    return True


async def test_an_idle_vault_releases_its_folder_and_opens_again_on_demand(tmp_path: Path) -> None:
    async with whole_server(tmp_path, vault_idle_s=0.2, health_check_interval_s=0.05) as server:
        memory = memory_pb2.Memory(content="Ada prefers window seats.")
        created = await server.memories.CreateMemory(memory_pb2.CreateMemoryRequest(memory=memory))
        await until(lambda: is_free(tmp_path / "tenants" / "default"))
        assert await health_of(server) == "SERVING"
        request = memory_pb2.GetMemoryRequest(memory_id=created.memory.memory_id)
        assert (await server.memories.GetMemory(request)).memory.content == "Ada prefers window seats."


async def test_a_watched_vault_stays_open(tmp_path: Path) -> None:
    async with whole_server(tmp_path, vault_idle_s=0.002) as server:
        watch = server.changes.WatchChanges(changes_pb2.WatchChangesRequest())
        assert (await watch.read()).HasField("started")
        # Each write and its change take longer than a vault may be idle.
        for number in range(3):
            memory = memory_pb2.Memory(content=f"note {number}")
            await server.memories.CreateMemory(memory_pb2.CreateMemoryRequest(memory=memory))
            assert len((await watch.read()).batch.changes) == 1
            assert not is_free(tmp_path / "tenants" / "default")
        watch.cancel()
        await until(lambda: is_free(tmp_path / "tenants" / "default"))


async def test_a_watch_resumes_on_a_vault_that_was_closed_in_the_meantime(tmp_path: Path) -> None:
    async with whole_server(tmp_path, vault_idle_s=0.2) as server:
        watch = server.changes.WatchChanges(changes_pb2.WatchChangesRequest())
        cursor = (await watch.read()).cursor
        watch.cancel()
        memory = memory_pb2.Memory(content="while nobody watched")
        created = await server.memories.CreateMemory(memory_pb2.CreateMemoryRequest(memory=memory))
        await until(lambda: is_free(tmp_path / "tenants" / "default"))
        again = server.changes.WatchChanges(changes_pb2.WatchChangesRequest(cursor=cursor))
        assert (await again.read()).HasField("started")
        [change] = (await again.read()).batch.changes
        assert change.record_id == created.memory.memory_id
        again.cancel()
