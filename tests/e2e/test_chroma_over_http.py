"""A Chroma server stops, loses and shares collections: the index reports the problem and works again afterwards."""

import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from mnemon_server.domain.errors import BackendConnectionError, ConfigurationError, EmbeddingModelMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings

from tests.contract.vector_index import DIMENSION, MODEL, entries_of, found, one_each, unit_vectors
from tests.support.chroma_index import request, served, truncate
from tests.support.chroma_server import ChromaServer


def test_a_server_stopped_in_the_middle_is_used_again_once_it_is_back(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "data") as server:
        index = served(server)
        vectors = unit_vectors(10, 50)
        before = index.open()
        index.apply(one_each(vectors), [])
        server.stop()
        with pytest.raises(BackendConnectionError, match=rf"127\.0\.0\.1:{server.port}"):
            index.search(vectors[0], limit=1, equal=RecordFilter())
        with pytest.raises(BackendConnectionError):
            index.apply(one_each(vectors, 10), [])
        with pytest.raises(BackendConnectionError):
            index.open()
        server.start()
        assert len(found(index, vectors[0])) == 10
        after = index.open()
        assert (after.entry_count, after.generation) == (10, before.generation)
        index.close()


@contextmanager
def dropping(count: int) -> Iterator[tuple[int, list[bytes]]]:
    """The port of a server that closes `count` connections after the request, and then answers. Also what it read."""
    read: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while len(read) <= count:
                connection, _ = listening.accept()
                with connection:
                    read.append(connection.recv(65_536))
                    if len(read) > count:
                        connection.sendall(b"HTTP/1.1 500 Error\r\ncontent-length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1], read
        if thread.is_alive():
            socket.create_connection(listening.getsockname()).close()
        thread.join()


@pytest.mark.parametrize(("dropped", "message"), [(3, "failed"), (4, "cannot be reached")])
def test_a_request_is_repeated_three_times_if_the_connection_breaks(dropped: int, message: str) -> None:
    with dropping(dropped) as (port, read):
        settings = ChromaSettings(host="127.0.0.1", port=port)
        index = ChromaIndex(settings, collection="documents", dimension=DIMENSION, model_identity=MODEL)
        with pytest.raises(BackendConnectionError, match=message):
            index.open()
        index.close()
        assert [request.split(b" ", 1)[0] for request in read[:4]] == [b"GET"] * 4


def test_closing_ends_a_call_to_a_server_that_hangs(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "data") as server, ThreadPoolExecutor(1) as threads:
        index = served(server)
        index.open()
        server.hang()
        applying = threads.submit(index.apply, one_each(unit_vectors(3, 56)), [])
        with pytest.raises(TimeoutError):
            applying.result(0.2)
        index.close()
        with pytest.raises(BackendConnectionError, match="closed"):
            applying.result(10)
        with pytest.raises(BackendConnectionError, match="closed"):
            index.open()


def test_a_server_that_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "data") as server:
        settings = ChromaSettings(host=server.host, port=server.port, call_timeout_s=5.0, search_timeout_s=0.2)
        index = ChromaIndex(settings, collection="documents", dimension=DIMENSION, model_identity=MODEL)
        index.open()
        server.hang()
        with pytest.raises(BackendConnectionError, match=r"did not answer within 0\.2 s"):
            index.search(unit_vectors(1, 57)[0], limit=1, equal=RecordFilter())
        server.go_on()
        index.apply(one_each(unit_vectors(3, 57)), [])
        assert len(found(index, unit_vectors(1, 57)[0])) == 3
        index.close()


def test_an_unreachable_server_fails_the_calls_but_not_the_constructor(tmp_path: Path) -> None:
    server = ChromaServer(tmp_path / "data")
    index = served(server)
    with pytest.raises(BackendConnectionError, match="cannot be reached") as caught:
        index.open()
    assert "Errno" not in str(caught.value)
    index.close()


def test_only_open_creates_a_lost_collection_again(chroma: ChromaServer) -> None:
    index = served(chroma, collection="lost")
    vectors = unit_vectors(3, 51)
    before = index.open()
    index.apply(one_each(vectors), [])
    request(chroma, "/lost", method="DELETE")
    with pytest.raises(BackendConnectionError, match="opened again"):
        index.apply(one_each(vectors, 10), [])
    after = index.open()
    assert (after.entry_count, after.generation != before.generation) == (0, True)
    index.close()


def test_open_creates_a_damaged_collection_again(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "data") as server:
        index = served(server)
        vectors = unit_vectors(1300, 54)
        before = index.open()
        index.apply(one_each(vectors), [])
        server.stop()
        [file] = (tmp_path / "data").rglob("index_metadata.pickle")
        truncate(file)
        server.start()
        after = index.open()
        assert (after.entry_count, after.generation != before.generation) == (0, True)
        index.apply(one_each(vectors[:3]), [])
        assert found(index, vectors[2], limit=1).keys() == {2}
        index.close()


def test_entries_that_are_too_large_for_one_request_are_sent_in_several(chroma: ChromaServer) -> None:
    index = served(chroma, collection="large")
    vectors = unit_vectors(45, 55)
    index.open()
    index.apply(one_each(vectors, page="x" * 1024 * 1024), [])
    assert index.open().entry_count == 45
    assert found(index, vectors[44], limit=1).keys() == {44}
    index.close()


@contextmanager
def abrupt_proxy(server: ChromaServer, bytes_max: int) -> Iterator[int]:
    """The port of a proxy that drops the connection of a request with a larger body, without an answer."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            length = int(self.headers.get("content-length", 0))
            if length > bytes_max:
                self.close_connection = True
                return
            url, body = f"http://{server.host}:{server.port}{self.path}", self.rfile.read(length)
            answer = httpx.request(self.command, url, content=body, headers={"content-type": "application/json"})
            head = f"HTTP/1.1 {answer.status_code} -\r\ncontent-length: {len(answer.content)}\r\n\r\n"
            self.wfile.write(head.encode() + answer.content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield proxy.server_port
        finally:
            proxy.shutdown()
            thread.join()


def test_a_proxy_that_drops_large_requests_gets_smaller_ones(chroma: ChromaServer) -> None:
    with abrupt_proxy(chroma, 100_000) as port:
        settings = ChromaSettings(host="127.0.0.1", port=port)
        index = ChromaIndex(settings, collection="dropped", dimension=DIMENSION, model_identity=MODEL)
        vectors = unit_vectors(4, 56)
        index.open()
        index.apply(one_each(vectors, page="x" * 40_000), [])
        assert index.open().entry_count == 4
        with pytest.raises(BackendConnectionError, match="cannot be reached"):
            index.apply(one_each(vectors[:1], page="x" * 110_000), [])
        index.close()


@pytest.mark.parametrize("space", ["l2", "ip", "cosine"])
def test_scores_are_cosines_whatever_distance_the_collection_was_created_with(chroma: ChromaServer, space: str) -> None:
    request(chroma, "", {"name": f"prepared-{space}", "configuration": {"hnsw": {"space": space}}})
    index = served(chroma, collection=f"prepared-{space}")
    index.open()
    vectors = unit_vectors(30, 52)
    index.apply(one_each(vectors), [])
    scores = found(index, vectors[0], limit=30)
    assert len(scores) == 30
    assert all(score == pytest.approx(float(vectors[i] @ vectors[0]), abs=1e-5) for i, score in scores.items())
    index.close()


def test_a_collection_with_records_of_another_program_is_refused(chroma: ChromaServer) -> None:
    collection = request(chroma, "", {"name": "foreign"})
    request(chroma, f"/{collection['id']}/add", {"ids": ["theirs"], "embeddings": [[0.0] * DIMENSION]})
    index = served(chroma, collection="foreign")
    with pytest.raises(ConfigurationError, match="another program"):
        index.open()
    index.close()


def test_any_client_of_chroma_can_read_the_records(chroma: ChromaServer) -> None:
    index = served(chroma, collection="readable")
    index.open()
    vectors = unit_vectors(2, 53)
    index.apply(entries_of("doc", 7, vectors, {"pages": 3, "ratio": 0.5, "draft": True, "tags": ("a", "b")}), [])
    collection = request(chroma, "/readable", method="GET")
    held = request(chroma, f"/{collection['id']}/get", {"include": ["documents", "metadatas", "embeddings"]})
    assert held["ids"] == ["doc", "doc\x1f1"]
    assert held["documents"] == ["passage 0 of doc", "passage 1 of doc"]
    own = {"pages": 3, "ratio": 0.5, "draft": True, "tags": ["a", "b"]}
    assert held["metadatas"][1] == own | {"mnemon:doc_id": "doc", "mnemon:passage": 1, "mnemon:passage_id": 8}
    assert held["embeddings"][0] == pytest.approx(vectors[0].tolist(), abs=1e-6)
    assert collection["metadata"]["mnemon:model"] == MODEL
    index.close()


@pytest.mark.parametrize("other", [{"model_identity": "another@2"}, {"dimension": DIMENSION + 1}])
def test_a_collection_of_another_model_is_refused_and_left_as_it_is(
    chroma: ChromaServer, tmp_path: Path, other: dict[str, Any]
) -> None:
    name = f"of-a-model-{tmp_path.name}"
    owner = served(chroma, collection=name)
    owner.open()
    owner.apply(one_each(unit_vectors(3, 40)), [])
    stranger = served(chroma, collection=name, **other)
    with pytest.raises(
        EmbeddingModelMismatchError, match=re.escape(f"has vectors of {MODEL} ({DIMENSION} components each)")
    ):
        stranger.open()
    stranger.close()
    assert owner.open().entry_count == 3
    owner.close()
