"""What the process of the vector index answers, frame by frame. Here it serves in a thread, over real pipes."""

import itertools
import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from mnemon_server.domain.collections import index_name_problem
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.chroma.protocol import Frame, OpenRequest, encode_frame, read_frame
from mnemon_server.engines.chroma.records import to_record, to_where
from mnemon_server.engines.promises.vector_index import IndexEntry

DIMENSION = 8


class Conversation:
    """The parent's side of the pipes."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings by Chroma's own imports
            # Imported here, since every process of a test run imports this module, and Chroma takes a second.
            from mnemon_server.engines.chroma.child import serve

        (here_in, child_out), (child_in, here_out) = os.pipe(), os.pipe()
        self._inbound, self._outbound = os.fdopen(here_in, "rb"), os.fdopen(here_out, "wb")
        ends = os.fdopen(child_in, "rb"), os.fdopen(child_out, "wb")
        self._thread = threading.Thread(target=serve, args=ends, daemon=True)
        self._ends = ends
        self._ids = itertools.count()
        self._thread.start()

    def ask(self, operation: str, payload: bytes = b"", **header: Any) -> Frame:
        """The answer to a request, which must carry its id."""
        number = self.send(operation, payload, **header)
        answer = self.receive()
        assert answer.header["id"] == number
        return answer

    def send(self, operation: str, payload: bytes = b"", **header: Any) -> int:
        """Sends a request; returns its id."""
        number = next(self._ids)
        self._outbound.write(encode_frame(Frame({"id": number, "op": operation, **header}, payload)))
        self._outbound.flush()
        return number

    def receive(self) -> Frame:
        """The next answer."""
        answer = read_frame(self._inbound)
        assert answer
        return answer

    def end(self) -> None:
        """Closes the pipe, which tells a child that it is no longer needed."""
        self._outbound.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._inbound.close()
        for end in self._ends:
            end.close()


@pytest.fixture
def request_(tmp_path: Path) -> OpenRequest:
    return OpenRequest(
        collection="knowledge", dimension=DIMENSION, model_identity="m/1", new_generation="g1", path=str(tmp_path / "c")
    )


@pytest.fixture
def child() -> Iterator[Conversation]:
    child = Conversation()
    yield child
    child.end()


def entry(number: int, **metadata: Any) -> IndexEntry:
    text = f"text {number}"
    document = Document(f"d{number}", text, metadata, scope=Scope(user="ada"), passages=(Passage(0, 0, len(text)),))
    vector = np.zeros(DIMENSION, np.float32)
    vector[number % DIMENSION] = 1
    return IndexEntry(number, document.doc_id, 0, text, vector, document)


def apply(child: Conversation, *entries: IndexEntry, doc_ids: list[str] | None = None) -> Frame:
    vectors = np.stack([e.vector for e in entries]).tobytes() if entries else b""
    ids = doc_ids if doc_ids is not None else [e.doc_id for e in entries]
    return child.ask("apply", vectors, doc_ids=ids, records=[to_record(e) for e in entries])


def search(child: Conversation, number: int, limit: int = 3, where: RecordFilter | None = None) -> list[int]:
    answer = child.ask("search", entry(number).vector.tobytes(), limit=limit, where=to_where(where or RecordFilter()))
    return np.frombuffer(answer.payload, "<i8", answer.header["result"]["count"]).tolist()


def test_it_opens_applies_and_searches(child: Conversation, request_: OpenRequest) -> None:
    opened = child.ask("open", request=asdict(request_)).header["result"]
    assert opened == {"generation": "g1", "entry_count": 0, "space": "cosine"}
    apply(child, entry(1, kind="a"), entry(2, kind="b"), entry(3, kind="b"))
    assert search(child, 2, limit=1) == [2]
    assert set(search(child, 2, where=RecordFilter({"kind": "b"}, Scope(user="ada")))) == {2, 3}
    assert search(child, 2, where=RecordFilter(scope=Scope(user="bob"))) == []
    assert child.ask("open", request=asdict(request_)).header["result"]["entry_count"] == 3


def test_searches_overtake_a_long_apply(child: Conversation, request_: OpenRequest) -> None:
    child.ask("open", request=asdict(request_))
    apply(child, entry(1))
    entries = [entry(number) for number in range(2, 3_000)]
    records, vectors = [to_record(each) for each in entries], np.stack([each.vector for each in entries]).tobytes()
    applying = child.send("apply", vectors, doc_ids=[each.doc_id for each in entries], records=records)
    searching = [child.send("search", entry(1).vector.tobytes(), limit=1, where=None) for _ in range(5)]
    answers = [child.receive() for _ in range(6)]
    # Searches that had to wait for the apply would all be answered after it.
    assert answers[0].header["id"] in searching
    found = {answer.header["id"]: answer.header["result"] for answer in answers}
    assert found.keys() == {applying, *searching}
    assert all(found[number]["count"] == 1 for number in searching)
    assert child.ask("open", request=asdict(request_)).header["result"]["entry_count"] == 2_999


def test_applying_replaces_and_removes(child: Conversation, request_: OpenRequest) -> None:
    child.ask("open", request=asdict(request_))
    apply(child, entry(1, old="yes"), entry(2))
    apply(child, entry(1, new="yes"))
    apply(child, doc_ids=["d2"])
    assert search(child, 1, where=RecordFilter({"old": "yes"})) == []
    assert search(child, 1) == [1]


def test_opening_again_finds_the_same_generation(request_: OpenRequest) -> None:
    for _ in range(2):
        child = Conversation()
        opened = child.ask("open", request=asdict(replace(request_, new_generation="another")))
        apply(child, *(entry(number) for number in range(1, 60)))
        child.end()
    assert opened.header["result"] == {"generation": "another", "entry_count": 59, "space": "cosine"}


def test_a_reset_empties_it_under_a_new_generation(child: Conversation, request_: OpenRequest) -> None:
    child.ask("open", request=asdict(request_))
    apply(child, entry(1))
    reset = child.ask("reset", new_generation="g2").header["result"]
    assert (reset["generation"], reset["entry_count"]) == ("g2", 0)
    assert search(child, 1) == []


def test_a_collection_of_another_model_is_refused(request_: OpenRequest) -> None:
    first = Conversation()
    first.ask("open", request=asdict(request_))
    apply(first, entry(1))
    first.end()
    second = Conversation()
    answer = second.ask("open", request=asdict(replace(request_, model_identity="other/1")))
    second.end()
    assert answer.header["failure"] == "mismatch"


def test_a_failing_request_gets_an_error_and_the_child_continues(child: Conversation, request_: OpenRequest) -> None:
    assert apply(child, entry(1)).header["failure"] == "stale"
    assert child.ask("dance").header["failure"] == "failed"
    assert child.ask("open", request=asdict(request_)).header["result"]["generation"] == "g1"


def test_a_missing_server_is_reported_as_unreachable(child: Conversation, request_: OpenRequest) -> None:
    away = replace(request_, path="", host="127.0.0.1", port=1)
    assert child.ask("open", request=asdict(away)).header["failure"] == "unreachable"


@pytest.mark.parametrize(
    "name",
    [
        "kb",
        "kbs",
        "x" * 512,
        "x" * 513,
        "-ab",
        "ab_",
        "a.b",
        "a..b",
        "1.2.3.4",
        "1.2.3",
        "a b",
        "n\u00ed\u00f1o",
        "A-b_9",
        "abc\n",
    ],
)
def test_the_names_that_chroma_refuses_are_refused_before(
    child: Conversation, request_: OpenRequest, name: str
) -> None:
    opened = "result" in child.ask("open", request=asdict(replace(request_, collection=name))).header
    assert opened == (not index_name_problem(name))


@pytest.mark.parametrize(
    ("status", "body", "damaged"),
    [
        (400, {"error": "InvalidArgumentError", "message": "name: expected 3-512 characters"}, False),
        (403, {"error": "AuthError", "message": "forbidden"}, False),
        (413, {"error": "Payload", "message": "too large"}, False),
        (429, {"error": "RateLimitError", "message": "slow down"}, False),
        (503, "upstream connect error", False),
        (500, {"error": "InternalError", "message": "Error executing plan: cannot read the segment"}, True),
    ],
)
def test_a_refused_request_is_no_damage(status: int, body: object, *, damaged: bool) -> None:
    from chromadb.api.base_http_client import BaseHTTPClient
    from mnemon_server.engines.chroma.collection import is_damage

    answer = httpx.Response(status, json=body, request=httpx.Request("POST", "http://chroma/query"))
    with pytest.raises(Exception) as caught:
        BaseHTTPClient._raise_chroma_error(answer)
    assert is_damage(caught.value) is damaged


def test_many_identical_vectors_are_not_damage(request_: OpenRequest) -> None:
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(5, DIMENSION)).astype(np.float32)
    child = Conversation()
    child.ask("open", request=asdict(request_))
    for start in range(0, 600, 200):
        entries = [replace(entry(i), vector=_unit(centres[i % 5])) for i in range(start, start + 200)]
        apply(child, *entries)
    assert child.ask("open", request=asdict(request_)).header["result"]["entry_count"] == 600
    child.end()
    again = Conversation()
    assert again.ask("open", request=asdict(request_)).header["result"]["entry_count"] == 600
    again.end()


def _unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)
