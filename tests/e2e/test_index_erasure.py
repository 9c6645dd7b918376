"""Deleted text leaves the files of embedded Chroma, which is rebuilt for that. A Chroma server keeps it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.app import open_document_store
from mnemon_server.config.settings import Settings
from mnemon_server.domain.documents import Document, IndexRequest, SearchQuery, StoreHealth
from mnemon_server.services.documents.store import DocumentStore

from tests.support.chroma_server import ChromaServer
from tests.support.databases import files_below

_KILLED = """
import asyncio, os, shutil, signal, sys
from pathlib import Path
from tests.e2e.test_index_erasure import remove_some, store

async def main(path, is_cut_off):
    async with store(path, 3600) as opened:
        await remove_some(opened)
        if not is_cut_off:
            os.kill(os.getpid(), signal.SIGKILL)
    shutil.rmtree = cut_off
    async with store(path) as opened:
        await asyncio.sleep(60)

def cut_off(path, **options):
    if "chroma" in Path(path).name:
        os.kill(os.getpid(), signal.SIGKILL)
    remove(path, **options)

remove = shutil.rmtree

asyncio.run(main(Path(sys.argv[1]), bool(sys.argv[2])))
"""


@asynccontextmanager
async def store(folder: Path, interval_s: float = 0.05, **options: Any) -> AsyncIterator[DocumentStore]:
    terms = {"exact_scan_passages_max": 0, "erasure_delay_s": 0.05, "chroma_erasure_interval_s": interval_s, **options}
    settings = Settings(data_dir=folder, embedding_model="hashing", **terms)
    async with open_document_store(settings, report=lambda _: None) as opened:
        yield opened


async def remove_some(opened: DocumentStore) -> None:
    """Indexes three documents and removes two: one is deleted, one is replaced."""
    await put(opened, a="amberword is here", b="birchword is here", c="cedarword is here")
    await opened.delete("a")
    await put(opened, b="something else")


async def put(opened: DocumentStore, **texts: str) -> None:
    await opened.index_many([IndexRequest(document=Document(name, text)) for name, text in texts.items()])
    await until(opened, lambda health: health.pending == 0)


async def until(opened: DocumentStore, condition: Callable[[StoreHealth], bool]) -> StoreHealth:
    async with asyncio.timeout(60):
        while True:
            if condition(health := await opened.check_health()):
                return health
            await asyncio.sleep(0.05)


async def erased(opened: DocumentStore) -> None:
    await until(opened, lambda health: health.removal_pending_count == health.pending == 0)


def words_in(folder: Path) -> set[str]:
    content = b"".join(content for _, content in files_below(folder))
    words = ("amberword", "birchword", "cedarword")
    return {word for word in words if word.encode() in content or word.encode("utf-16-le") in content}


async def found(opened: DocumentStore, text: str) -> list[str]:
    return [result.doc_id for result in (await opened.search(SearchQuery(text=text, top_k=1))).results]


async def test_deleted_and_replaced_text_leaves_the_files_of_the_index(tmp_path: Path) -> None:
    aside = tmp_path / "tenants" / "default" / "quarantine" / "chroma-20260101T000000000000Z"
    aside.mkdir(parents=True)
    (aside / "chroma.sqlite3").write_bytes(b"amberword")
    other = aside.with_name("chroma-memories-20260101T000000000000Z")
    other.mkdir()
    async with store(tmp_path, 3600) as opened:
        await remove_some(opened)
        health = await opened.check_health()
        assert (health.removal_pending_count, health.removal_out_of_reach_count) == (2, 0)
        assert words_in(tmp_path) == {"amberword", "birchword", "cedarword"}
    async with store(tmp_path) as opened:
        await erased(opened)
        assert words_in(tmp_path) == {"cedarword"}
        assert await found(opened, "cedarword is here") == ["c"]
        # Nothing was removed since, so nothing is rebuilt.
        await put(opened, d="one more")
        assert (await opened.check_health()).removal_pending_count == 0
    assert (aside.exists(), other.exists()) == (False, True)


async def test_documents_are_found_while_the_index_is_rebuilt(tmp_path: Path) -> None:
    async with store(tmp_path) as opened:
        await put(opened, **{f"d{number}": f"number{number} is here" for number in range(20)})

        async def search(stop: asyncio.Event) -> int:
            count = 0
            while not stop.is_set() or not count:
                assert await found(opened, f"number{count % 19} is here") == [f"d{count % 19}"]
                count += 1
            return count

        stop = asyncio.Event()
        searches = asyncio.create_task(search(stop))
        await opened.delete("d19")
        await erased(opened)
        stop.set()
        assert await searches


@pytest.mark.slow
async def test_a_kill_before_or_during_a_rebuild_forgets_no_erasure(tmp_path: Path) -> None:
    for moment in ("", "during"):
        folder = tmp_path / f"killed {moment}"
        command = [sys.executable, "-c", _KILLED, str(folder), moment]
        killed = await asyncio.to_thread(subprocess.run, command, timeout=90, check=False, capture_output=True)
        assert killed.returncode == -9, killed.stderr
        async with store(folder, 3600) as opened:
            # Only a rebuild lowers the number.
            assert (await opened.check_health()).removal_pending_count == 2
        async with store(folder) as opened:
            await erased(opened)
            assert words_in(folder) == {"cedarword"}
            assert await found(opened, "cedarword is here") == ["c"]


@pytest.mark.slow
async def test_text_kept_by_a_chroma_server_is_counted_as_out_of_reach(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as chroma:
        await _check_out_of_reach(tmp_path / "data", chroma)


async def _check_out_of_reach(folder: Path, chroma: ChromaServer) -> None:
    async with store(folder, chroma_host=chroma.host, chroma_port=chroma.port) as opened:
        await remove_some(opened)

        def counted(health: StoreHealth) -> bool:
            return (health.removal_pending_count, health.removal_out_of_reach_count) == (0, 2)

        await until(opened, counted)
        async for _ in opened.rebuild_index():
            pass
        assert counted(await until(opened, lambda health: health.removal_pending_count == health.pending == 0))
