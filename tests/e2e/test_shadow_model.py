"""A second embedding model beside the one that a server serves with, then in its place, and back."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mnemon import AsyncClient, Client
from mnemon_server.domain.errors import ConfigurationError

from tests.support.killable import KillableServer, insist
from tests.support.server import until, wait_until, whole_server
from tests.support.server_command import run
from tests.support.tiny_models import write_model

PART = 100
LOCAL = ("--knowledge-store-backend", "local")


def progress(data_dir: Path) -> list[tuple[str, int, int]]:
    """How far the tenants are."""
    done = run("shadow", "status", "--json", "--data-dir", data_dir)
    rows = json.loads(done.stdout)
    assert done.returncode == (0 if all(row["complete"] for row in rows) else 1)
    return [(row["tenant"], row["done"], row["total"]) for row in rows]


def is_complete(data_dir: Path, tenants: int = 1) -> bool:
    found = progress(data_dir)
    return len(found) == tenants and all(done == total > 0 for _, done, total in found)


@asynccontextmanager
async def served(data_dir: Path, **settings: Any) -> AsyncIterator[AsyncClient]:
    """A client of a server on a folder."""
    async with (
        whole_server(data_dir, **settings) as connection,
        AsyncClient(str(connection.server.address)) as client,
    ):
        yield client


class Writer(threading.Thread):
    """Writes documents one after the other, whatever happens to the server."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.stopped = threading.Event()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        with Client(self._address) as client:
            while not self.stopped.is_set():
                doc_id = f"d{len(self.acknowledged)}"
                insist(lambda doc_id=doc_id: client.documents.put(doc_id, f"a kitten in {doc_id}", self._part()))  # type: ignore[misc]
                self.acknowledged.append(doc_id)

    def found(self, client: Client) -> list[str]:
        """What a search by vector finds, part by part: it compares all vectors, and answers with a hundred."""
        parts = [{"part": number} for number in range(self._part()["part"] + 1)]
        answers = [client.documents.search("a kitten", filters=part, mode="vector", limit=PART) for part in parts]
        return [hit.doc_id for answer in answers for hit in answer.results]

    def _part(self) -> dict[str, int]:
        return {"part": len(self.acknowledged) // PART}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_write_is_lost_while_servers_are_killed_and_the_model_is_exchanged(tmp_path: Path) -> None:
    tiny = str(write_model(tmp_path / "tiny"))
    server = KillableServer(tmp_path, *LOCAL, "--embedding-shadow-model", tiny)
    server.start()
    writer = Writer(server.address)
    writer.start()
    try:
        for least in (20, 60):
            wait_until(lambda least=least: len(writer.acknowledged) >= least)  # type: ignore[misc]
            server.kill()
            server.start()
        wait_until(lambda: len(writer.acknowledged) >= 100)
        server.kill()
        # A flag that comes later counts.
        server.use(*LOCAL, "--embedding-model", tiny, "--embedding-shadow-model", "hashing")
        server.start()
        wait_until(lambda: len(writer.acknowledged) >= 120)
    finally:
        writer.stopped.set()
        writer.join()
    with Client(server.address) as client:
        assert {document.doc_id for document in client.documents.list()} == {*writer.acknowledged}
        # Only the new model knows that both words mean the same.
        [best] = client.documents.search("cat", mode="vector", limit=1).results
        assert best.score > 0.2
        assert client.documents.status().embedding_model.name == "tiny"
        assert sorted(writer.found(client)) == sorted(writer.acknowledged)
    wait_until(lambda: is_complete(server.data_dir))
    server.kill()
    server.use(*LOCAL)
    server.start()
    with Client(server.address) as client:
        assert client.documents.status().embedding_model.name == "hashing"
        assert sorted(writer.found(client)) == sorted(writer.acknowledged)
        [best] = client.documents.search("a kitten in d7", mode="vector", limit=1).results
        assert best.score > 0.999
    server.kill()


async def test_a_server_takes_the_second_model_once_all_vaults_have_its_vectors_and_takes_the_first_one_back(
    tmp_path: Path,
) -> None:
    tiny, data = str(write_model(tmp_path / "tiny")), tmp_path / "data"
    for tenant in ("acme", "default"):
        async with served(data) as client:
            await client.documents.put("d", f"the cat of {tenant}")
        if tenant == "acme":
            (data / "tenants/default").rename(data / "tenants/acme")
            (data / "vaults/default").unlink()
    assert run("shadow", "status", "--data-dir", data).returncode == 2
    async with served(data, embedding_shadow_model=tiny) as client:
        # No call opens the vault of acme.
        await until(lambda: is_complete(data, tenants=2))
        done = run("shadow", "status", "--follow", "--data-dir", data)
        assert (done.returncode, done.stdout.splitlines()[0].split(",")[0]) == (0, "acme: 1 of 1 passages")
        assert "stop it" in run("shadow", "remove", "--data-dir", data).stderr
        assert (await client.documents.status()).embedding_model.name == "hashing"
        found = await client.documents.search("kitten", mode="vector", limit=1)
        assert all(hit.score < 0.2 for hit in found)
    async with served(data, embedding_model=tiny) as client:
        assert (await client.documents.status()).embedding_model.name == "tiny"
        # Only this model knows that both words mean the same.
        assert (await client.documents.search("kitten", mode="vector", limit=1)).results[0].score > 0.2
        await client.documents.put("e", "a loaf of bread")
    async with served(data) as client:
        assert (await client.documents.status()).embedding_model.name == "hashing"
        found = await client.documents.search("a loaf of bread", mode="vector", limit=1)
        assert [hit.doc_id for hit in found.results] == ["e"]
    assert run("shadow", "remove", "--data-dir", data).returncode == 0
    assert run("shadow", "status", "--data-dir", data).returncode == 2
    assert run("verify", data).returncode == 0


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"embedding_shadow_model": "hashing"}, "set another one"),
        ({"embedding_shadow_model": "tiny", "embedding_model_dir": Path("weights")}, "path of the folder"),
        ({"embedding_shadow_model": "tiny", "knowledge_store_backend": "in_memory"}, "stores none"),
    ],
)
async def test_settings_that_make_no_sense_are_refused(tmp_path: Path, settings: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        async with whole_server(tmp_path, **settings):
            pass
