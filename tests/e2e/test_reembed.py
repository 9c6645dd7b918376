"""From one embedding model to another: refused with advice, then done with `mnemon-server reembed`."""

import subprocess
import sys
from pathlib import Path

import pytest
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import EmbeddingModelMismatchError
from mnemon_server.knowledge_store import ConfiguredStore

from tests.contract.knowledge_store import PETS, fill, ids, until_healthy

DEFAULT_MODEL = Settings().embedding_model


def store(folder: Path, model: str) -> ConfiguredStore:
    return ConfiguredStore(Settings(data_dir=folder, embedding_model=model, exact_scan_passages_max=0))


def reembed(folder: Path, model: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mnemon_server", "reembed", "--data-dir", str(folder), "--embedding-model", model]
    return subprocess.run(command, capture_output=True, text=True, check=False)


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


def test_a_folder_without_records_is_named(tmp_path: Path) -> None:
    done = reembed(tmp_path / "nowhere", "hashing")
    assert done.returncode == 1
    assert "there are no records" in done.stderr
    assert "Traceback" not in done.stderr
