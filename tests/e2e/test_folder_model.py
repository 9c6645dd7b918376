"""A server on a model from a folder: searches by meaning, refuses other files, and moves to and from other models."""

import subprocess
from pathlib import Path

import mnemon
import pytest
from mnemon_server.domain.errors import EmbeddingModelMismatchError

from tests.support.server import run_command, whole_server
from tests.support.tiny_models import write_json, write_model

TEXTS = {"a": "the kitten", "b": "the aquarium", "c": "the loaf"}
QUERIES = ("cat", "fish", "bread")


async def nearest(client: mnemon.AsyncClient) -> list[str]:
    answers = [await client.documents.search(query, limit=1, mode="vector") for query in QUERIES]
    return [answer.results[0].document.doc_id for answer in answers]


def command(name: str, data_dir: Path, model: Path | str) -> subprocess.CompletedProcess[str]:
    flags = ["--data-dir", str(data_dir), "--embedding-model", str(model), "--listen", "127.0.0.1:0"]
    return run_command(name, *flags)


async def test_a_vault_moves_to_a_model_in_a_folder_and_back(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", write_model(tmp_path / "tiny", prompts={"query": "query: ", "passage": "the "})
    async with whole_server(data) as server, mnemon.AsyncClient(str(server.server.address)) as client:
        for doc_id, content in TEXTS.items():
            await client.documents.put(doc_id, content)

    done = command("reembed", data, folder)
    assert (done.returncode, done.stdout) == (0, "3 documents have new vectors\n"), done.stderr

    settings = {"embedding_model": str(folder)}
    async with whole_server(data, **settings) as server, mnemon.AsyncClient(str(server.server.address)) as client:
        assert await nearest(client) == ["a", "b", "c"]
        before = await client.documents.get("a", view="full")
        await client.documents.put("again", TEXTS["a"])
        again = await client.documents.get("again", view="full")
        assert before.embeddings == again.embeddings, "the command and the server embed differently"
        assert (await client.server_info()).embedding_model.name == "tiny"

    done = command("reembed", data, "hashing")
    assert (done.returncode, done.stdout) == (0, "4 documents have new vectors\n"), done.stderr
    async with whole_server(data) as server, mnemon.AsyncClient(str(server.server.address)) as client:
        assert (await client.documents.search("kitten", limit=1)).results[0].document.doc_id == "a"


async def test_a_vault_is_not_opened_with_changed_files(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "tiny")
    async with whole_server(tmp_path / "data", embedding_model=str(folder)):
        pass
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})
    with pytest.raises(
        EmbeddingModelMismatchError, match=r"made by tiny@.*: configure tiny again, .* with .mnemon-server re"
    ):
        async with whole_server(tmp_path / "data", embedding_model=str(folder)):
            pass


@pytest.mark.parametrize("name", ["serve", "prepare", "reembed"])
def test_commands_name_the_file_that_is_wrong(tmp_path: Path, name: str) -> None:
    folder = write_model(tmp_path / "tiny")
    (folder / "tokenizer.json").unlink()
    ended = command(name, tmp_path / "data", folder)
    assert ended.returncode == 1
    assert f"{folder}/tokenizer.json is missing" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_prepare_prints_the_identity_of_the_model(tmp_path: Path) -> None:
    ended = command("prepare", tmp_path / "data", write_model(tmp_path / "tiny"))
    assert ended.stdout.startswith("tiny@") and ended.stdout.endswith("/model/8\n"), ended.stderr
