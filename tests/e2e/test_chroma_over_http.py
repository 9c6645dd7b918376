"""A Chroma server stops, loses and shares collections: the index reports the problem and works again afterwards."""

import json
import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon_server.domain.errors import BackendConnectionError, ConfigurationError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma.supervisor import Environment

from tests.contract.vector_index import DIMENSION, MODEL, entries_of, found, one_each, unit_vectors
from tests.support.chroma_index import (
    API,
    request,
    served,
    truncate,
)
from tests.support.chroma_server import ChromaServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    with ChromaServer(tmp_path_factory.mktemp("chroma") / "data") as server:
        yield server


def test_a_server_stopped_in_the_middle_is_used_again_once_it_is_back(tmp_path: Path) -> None:
    slept: list[float] = []
    with ChromaServer(tmp_path / "data") as server:
        index = served(server, environment=Environment(sleep=slept.append, rng=random.Random(1)))
        vectors = unit_vectors(10, 50)
        index.apply(one_each(vectors), [])
        server.stop()
        with pytest.raises(BackendConnectionError, match=rf"127\.0\.0\.1:{server.port}"):
            index.search(vectors[0], limit=1, equal=RecordFilter())
        assert [round(delay / base, 1) for delay, base in zip(slept, (0.1, 0.2, 0.4), strict=True)] == pytest.approx(
            [1, 1, 1], abs=0.3
        )
        with pytest.raises(BackendConnectionError):
            index.apply(one_each(vectors, 10), [])
        with pytest.raises(BackendConnectionError):
            index.open()
        server.start()
        assert index.open().entry_count == 10
        assert len(found(index, vectors[0])) == 10
        index.close()


def test_an_unreachable_server_fails_the_calls_but_not_the_constructor(tmp_path: Path) -> None:
    server = ChromaServer(tmp_path / "data")
    index = served(server)
    with pytest.raises(BackendConnectionError, match="cannot be reached") as caught:
        index.open()
    assert "Errno" not in str(caught.value)
    index.close()


def test_only_open_creates_a_lost_collection_again(server: ChromaServer) -> None:
    index = served(server, collection="lost")
    vectors = unit_vectors(3, 51)
    before = index.open()
    index.apply(one_each(vectors), [])
    drop = urllib.request.Request(f"http://{server.host}:{server.port}{API}/lost", method="DELETE")
    urllib.request.urlopen(drop, timeout=10).close()
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


def test_entries_that_are_too_large_for_one_request_are_sent_in_several(server: ChromaServer) -> None:
    index = served(server, collection="large")
    vectors = unit_vectors(45, 55)
    index.open()
    index.apply(one_each(vectors, page="x" * 1024 * 1024), [])
    assert index.open().entry_count == 45
    assert found(index, vectors[44], limit=1).keys() == {44}
    index.close()


@pytest.mark.parametrize("space", ["l2", "ip", "cosine"])
def test_scores_are_cosines_whatever_distance_the_collection_was_created_with(server: ChromaServer, space: str) -> None:
    request(server, "", {"name": f"prepared-{space}", "configuration": {"hnsw": {"space": space}}})
    index = served(server, collection=f"prepared-{space}")
    vectors = unit_vectors(30, 52)
    index.apply(one_each(vectors), [])
    scores = found(index, vectors[0], limit=30)
    assert len(scores) == 30
    assert all(score == pytest.approx(float(vectors[i] @ vectors[0]), abs=1e-5) for i, score in scores.items())
    index.close()


def test_a_collection_with_records_of_another_program_is_refused(server: ChromaServer) -> None:
    collection = request(server, "", {"name": "foreign"})
    request(server, f"/{collection['id']}/add", {"ids": ["theirs"], "embeddings": [[0.0] * DIMENSION]})
    index = served(server, collection="foreign")
    with pytest.raises(ConfigurationError, match="another program"):
        index.open()
    index.close()


def test_any_client_of_chroma_can_read_the_records(server: ChromaServer) -> None:
    index = served(server, collection="readable")
    vectors = unit_vectors(2, 53)
    index.apply(entries_of("doc", 7, vectors, {"pages": 3, "ratio": 0.5, "draft": True, "tags": ("a", "b")}), [])
    with urllib.request.urlopen(f"http://{server.host}:{server.port}{API}/readable", timeout=10) as answer:
        collection = json.load(answer)
    held = request(server, f"/{collection['id']}/get", {"include": ["documents", "metadatas", "embeddings"]})
    assert held["ids"] == ["doc", "doc\x1f1"]
    assert held["documents"] == ["passage 0 of doc", "passage 1 of doc"]
    own = {"pages": 3, "ratio": 0.5, "draft": True, "tags": ["a", "b"]}
    assert held["metadatas"][1] == own | {"mnemon:doc_id": "doc", "mnemon:passage": 1, "mnemon:passage_id": 8}
    assert held["embeddings"][0] == pytest.approx(vectors[0].tolist(), abs=1e-6)
    assert collection["metadata"]["mnemon:model"] == MODEL
    index.close()
