"""From one embedding model to another: refused with advice, then done with `mnemon-server reembed`."""

import asyncio
import subprocess
from pathlib import Path

import mnemon
import pytest
from mnemon_server.app import open_vaults
from mnemon_server.commands.reembed import reembed_documents
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import EmbeddingModelMismatchError
from mnemon_server.engines.folder import FolderInUseError
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.knowledge_store import ConfiguredStore

from tests.contract.knowledge_store import PETS, fill, ids, until_healthy
from tests.e2e.test_vault_lifecycle import is_free
from tests.support.server import run_command, until, whole_server
from tests.support.tiny_models import write_model

DEFAULT_MODEL = Settings().embedding_model


def store(folder: Path, model: str) -> ConfiguredStore:
    return ConfiguredStore(Settings(data_dir=folder, embedding_model=model, exact_scan_passages_max=0))


def reembed(folder: Path, model: str) -> subprocess.CompletedProcess[str]:
    return run_command("reembed", "--data-dir", str(folder), "--embedding-model", model)


@pytest.mark.weights
async def test_documents_move_to_another_model_and_their_index_with_them(tmp_path: Path) -> None:
    async with store(tmp_path, "hashing") as first:
        await fill(first, PETS)
        await until_healthy(first)
    async with store(tmp_path, DEFAULT_MODEL) as refused:
        with pytest.raises(EmbeddingModelMismatchError, match="mnemon-server reembed"):
            await refused.search("cats")

    done = reembed(tmp_path, DEFAULT_MODEL)

    assert (done.returncode, done.stdout) == (0, "3 documents have new vectors\n"), done.stderr
    async with store(tmp_path, DEFAULT_MODEL) as moved:
        await until_healthy(moved)
        # Search by meaning, which only the new model supports: no word is shared.
        assert ids(await moved.search("a pet that lives in an aquarium", top_k=1)) == ["fish"]
        document = await moved.get_by_id("cats")
        assert document is not None
        assert document.revision == 1


async def test_a_running_server_is_left_alone_and_the_command_says_what_to_do(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as server, mnemon.AsyncClient(str(server.server.address)) as client:
        await client.documents.put("a", "the cat")
        refused = await asyncio.to_thread(reembed, tmp_path, str(write_model(tmp_path / "tiny")))
        assert refused.returncode == 1
        assert (
            f"a server uses the data folder '{tmp_path}', and nothing has changed: stop the server, run this command "
            f"again, and then start the server with the embedding model {tmp_path}/tiny\n"
        ) in refused.stderr
        await client.documents.put("b", "the fish")
        assert len((await client.documents.search("the cat", mode="vector")).results) == 2


async def test_the_vaults_of_a_running_server_are_left_alone_while_they_are_closed(tmp_path: Path) -> None:
    async with (
        whole_server(tmp_path, vault_idle_s=0.05, health_check_interval_s=0.05) as server,
        mnemon.AsyncClient(str(server.server.address)) as client,
    ):
        await client.documents.put("a", "the cat")
        await until(lambda: is_free(tmp_path / "tenants" / "default"))
        refused = await asyncio.to_thread(reembed, tmp_path, str(write_model(tmp_path / "tiny")))
        assert refused.returncode == 1
        assert "a server uses the data folder" in refused.stderr
        assert len((await client.documents.search("the cat", mode="vector")).results) == 1


def test_a_server_does_not_start_while_vaults_are_embedded_anew(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, embedding_model="hashing")
    SQLiteVault(tmp_path / "tenants" / "default", model_identity="old", dimension=8).close()
    running = reembed_documents(settings)
    next(running)
    with pytest.raises(FolderInUseError, match="in use by another process"):
        asyncio.run(_start(settings))
    running.close()
    for _ in reembed_documents(settings):
        pass
    asyncio.run(_start(settings))


async def _start(settings: Settings) -> None:
    async with open_vaults(settings, report=print):
        pass


def test_no_vault_changes_while_a_server_uses_another_one(tmp_path: Path) -> None:
    for tenant in ("default", "other"):
        folder = tmp_path / "tenants" / tenant
        SQLiteVault(folder, model_identity="old", dimension=8).close()
    opened = SQLiteVault(folder, model_identity="old", dimension=8)
    refused = reembed(tmp_path, "hashing")
    opened.close()
    assert "a server uses the data folder" in refused.stderr
    for tenant in ("default", "other"):
        SQLiteVault(tmp_path / "tenants" / tenant, model_identity="old", dimension=8).close()
    done = reembed(tmp_path, "hashing")
    assert (done.returncode, done.stdout) == (0, "0 documents have new vectors\n"), done.stderr


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    done = reembed(tmp_path / "nowhere", "hashing")
    assert done.returncode == 1
    assert "there are no records" in done.stderr
    assert "Traceback" not in done.stderr
