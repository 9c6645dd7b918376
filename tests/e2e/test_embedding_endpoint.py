"""A server whose model is behind an endpoint, which is there, away, slow, or answers nonsense."""

import asyncio
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import mnemon
import pytest
from mnemon_server.domain.errors import ConfigurationError, EmbeddingError

from tests.support.embedding_endpoint import embedding, hashed_above, settings_for
from tests.support.ports import HeldPort
from tests.support.server import Connection, run_command, server_process, whole_server
from tests.support.tiny_models import NUMBERS
from tests.support.tool_endpoints import saying, tool_server

KEY = "sk-e2e-0123456789"
TEXTS = {"a": "the kitten", "b": "the aquarium", "c": "the loaf"}
LOCAL = ("--knowledge-store-backend", "local")
QUERIES = ("cat", "fish", "bread")


def connect(server: Connection) -> mnemon.AsyncClient:
    return mnemon.AsyncClient(str(server.server.address))


async def fill(client: mnemon.AsyncClient) -> None:
    for doc_id, content in TEXTS.items():
        await client.documents.put(doc_id, content)


async def first(client: mnemon.AsyncClient, query: str, mode: str) -> str:
    answer = await client.documents.search(query, limit=1, mode=mode, timeout=60)
    return str(answer.results[0].document.doc_id)


async def test_all_services_embed_and_search_through_the_endpoint(tmp_path: Path) -> None:
    prefixes = {"embedding_query_prefix": "query: ", "embedding_passage_prefix": "passage: "}
    with tool_server(embedding()) as served:
        settings = settings_for(served.port, timeline_embeddings=True, **prefixes)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            await fill(client)
            assert [await first(client, query, "vector") for query in QUERIES] == ["a", "b", "c"]
            assert [await first(client, query, "hybrid") for query in QUERIES] == ["a", "b", "c"]
            await client.memories.add("the loaf", user="u")
            (match,) = (await client.memories.search("bread", limit=1, mode="vector")).results
            assert match.memory.content == "the loaf"
            await client.semantic.add("the kitten", user="u")
            (similar,) = (await client.semantic.search("cat", user="u", limit=1, min_similarity=0.1)).results
            assert similar.memory.content == "the kitten"
            assert (await client.server_info()).embedding_model.name == "tiny"
    sent = [text for request in served.received[1:] for text in request.arguments["input"]]
    assert {text.partition(" ")[0] for text in sent} == {"query:", "passage:"}


async def test_of_a_model_with_high_cosines_only_what_is_above_its_zero_is_related(tmp_path: Path) -> None:
    """Every cosine is about 0.75 or more. A hybrid search shows nothing without a word or more than that in common."""
    related, unrelated = "Ada drinks green tea", "Elephants migrate northwards"
    with tool_server(embedding(embed=hashed_above(0.75))) as served:
        settings = settings_for(served.port, timeline_embeddings=True)
        async with whole_server(tmp_path, **settings) as server, connect(server) as client:
            for number, text in enumerate((related, unrelated)):
                await client.documents.put(str(number), text)
                await client.memories.add(text, user="u")
                await client.facts.put(["notes"], str(number), {"text": text})
                await client.timeline.add("custom", text, user="u")
            near = (await client.documents.search("tea", mode="vector")).results
            assert [result.vector_score is not None and result.vector_score > 0.7 for result in near] == [True, True]
            (document,) = (await client.documents.search("tea")).results
            (memory,) = (await client.memories.search("tea", user="u", explain=True)).results
            (fact,) = (await client.facts.search("tea", subtree=True)).results
            (event,) = (await client.timeline.search("tea", user="u")).results
    assert (document.document.content, memory.content) == (related, related)
    assert (fact.value, event.event.content) == ({"text": related}, related)
    assert memory.explanation is not None
    assert memory.similarity is not None
    parts = {part.name: part for part in memory.explanation.parts}
    assert parts["vector"].score < 0.75 < memory.similarity, "it counts from the zero, and is shown as it is"
    assert sum(part.contribution for part in parts.values()) == pytest.approx(memory.score)


async def test_while_the_endpoint_is_away_reads_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    port = HeldPort()
    settings = settings_for(port.number, embedding_dimensions=NUMBERS)
    with tool_server(embedding()) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await fill(client)
    async with whole_server(tmp_path, **settings) as server, connect(server) as client:
        for mode in ("vector", "hybrid"):
            with pytest.raises(mnemon.UnavailableError, match="the embedding endpoint cannot be reached"):
                await first(client, "cat", mode)
        with pytest.raises(mnemon.UnavailableError, match="the embedding endpoint cannot be reached"):
            await client.documents.put("d", "the fish")
        with pytest.raises(mnemon.DocumentNotFoundError):
            await client.documents.get("d")
        assert (await client.documents.get("a")).content == TEXTS["a"]
        assert await first(client, "loaf", "keyword") == "c"
        with tool_server(embedding(), port.number):
            await client.documents.put("d", "the fish")
            assert await first(client, "aquarium fish", "vector") in {"b", "d"}


async def test_searches_by_word_do_not_wait_for_an_endpoint_that_hangs(tmp_path: Path) -> None:
    with tool_server(embedding()) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            await fill(client)
            asked = asyncio.Event()
            loop = asyncio.get_running_loop()

            def hang(handler: BaseHTTPRequestHandler) -> None:
                loop.call_soon_threadsafe(asked.set)
                served.ended.wait()
                handler.close_connection = True

            served.answer = hang
            waiting = [
                asyncio.create_task(client.documents.search(f"cat {number}", timeout=30)) for number in range(40)
            ]
            await asked.wait()
            assert await first(client, "loaf", "keyword") == "c"
            assert (await client.documents.get("a")).content == TEXTS["a"]
            with pytest.raises(mnemon.DeadlineExceededError):
                await client.documents.search("bread", timeout=0.3)
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            served.ended.set()
            await asyncio.gather(*waiting, return_exceptions=True)


async def test_nonsense_is_an_error_that_says_what_was_wrong(tmp_path: Path) -> None:
    with tool_server(embedding()) as served:
        async with whole_server(tmp_path, **settings_for(served.port)) as server, connect(server) as client:
            for answer, words in (
                (saying("<html>"), "is not JSON"),
                (saying('{"data": []}'), "answered 0 vectors for 1 texts"),
                (saying("{}", 401), "the key is missing or wrong"),
            ):
                served.answer = answer
                with pytest.raises(mnemon.UnavailableError, match=words):
                    await client.documents.put("x", f"the cat {words}")
            served.answer = embedding()
            assert (await client.documents.status()).document_count == 0


async def test_a_server_without_the_dimension_needs_the_endpoint_at_its_start(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError, match="With embedding_dimensions, the server starts without it"):
        async with whole_server(tmp_path, **settings_for(HeldPort().number)):
            pass


async def test_a_url_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not the URL of an endpoint"):
        async with whole_server(tmp_path, embedding_endpoint="localhost"):
            pass


def endpoint_flags(url: str, key: Path) -> list[str]:
    flags = ["--embedding-model", "tiny", "--embedding-endpoint", url, "--embedding-endpoint-key-file", str(key)]
    return [*flags, *LOCAL]


def test_the_start_says_where_texts_go_and_the_key_is_nowhere(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    with tool_server(embedding()) as served:
        url = f"http://127.0.0.1:{served.port}/v1"
        with server_process(tmp_path / "data", *endpoint_flags(url, key)) as server:
            with mnemon.Client(server.address()) as client:
                client.documents.put("a", "the cat")
                served.answer = saying("{}", 401)
                with pytest.raises(mnemon.UnavailableError):
                    client.documents.put("b", "the fish")
            process = Path(f"/proc/{server.process.pid}")
            assert KEY not in (process / "cmdline").read_text()
            assert KEY not in (process / "environ").read_text()
        assert f"texts and queries are sent to {url}, on this machine, to be embedded\n" in server.output
        assert KEY not in server.output
    assert served.received[-1].headers["authorization"] == f"Bearer {KEY}"
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not any(KEY.encode() in path.read_bytes() for path in files)


def test_a_remote_endpoint_is_announced_before_it_is_asked(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    flags = ["--data-dir", str(tmp_path), *endpoint_flags("http://nowhere.invalid/v1", key)]
    ended = run_command("serve", "--listen", "127.0.0.1:0", *flags)
    assert ended.returncode == 1
    first_line, *rest = ended.stderr.splitlines()
    assert first_line == (
        "texts and queries leave this machine: they are sent to http://nowhere.invalid/v1 without encryption to be "
        "embedded"
    )
    assert "the embedding endpoint cannot be reached" in rest[-1]


def test_records_get_new_vectors_from_an_endpoint(tmp_path: Path) -> None:
    with tool_server(embedding()) as served:
        with server_process(tmp_path, *LOCAL) as server, mnemon.Client(server.address()) as client:
            client.documents.put("a", "the kitten")
        url = f"http://127.0.0.1:{served.port}/v1"
        flags = ["--data-dir", str(tmp_path), "--embedding-model", "tiny", "--embedding-endpoint", url]
        ended = run_command("reembed", *flags)
        assert ended.stdout == "1 documents have new vectors\n", ended.stderr
        with server_process(tmp_path, *flags[2:], *LOCAL) as server, mnemon.Client(server.address()) as client:
            assert client.documents.search("cat", mode="vector").results[0].document.doc_id == "a"
