"""The compared searches: the ones that an agent calls, with default settings, and plain ones."""

import hashlib
import json
import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import chromadb
import numpy as np
from mnemon import Client, Document, EpisodicEvent, Fact, Memory, Scope, SemanticMemory, View
from mnemon_server.embedding.base import Embedder
from numpy.typing import NDArray
from stop_words import get_stop_words

from tests.bench.finding.sets import Collection

LIMIT = 10
AT_ONCE = 4
"""How many questions a server is asked at the same time."""


class Search(ABC):
    """One way to find texts."""

    @abstractmethod
    def store(self, collection: Collection) -> None:
        """Stores the texts of a collection."""

    @abstractmethod
    def find(self, collection: Collection) -> list[list[str]]:
        """For each question of a collection that is stored: the ids of the texts found, best first."""


class ServerSearch(Search):
    """A search of a server, with a limit and otherwise its defaults."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._texts: dict[tuple[str, str], list[str]] = {}
        """The texts of a record, by collection and id of the record: statements of one text are one record."""

    def store(self, collection: Collection) -> None:
        for text, result in zip(collection.texts, self._put(collection), strict=True):
            if result.error:
                raise result.error
            self._texts.setdefault((collection.name, self._id(result)), []).append(text.id)

    def find(self, collection: Collection) -> list[list[str]]:
        def ask(question: str) -> list[str]:
            records = self._search(collection.name, question)
            return [text for record in records for text in self._texts[collection.name, record]]

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(ask, (question.text for question in collection.questions)))

    def through(self, client: Client) -> Self:
        """The same search through a client of another server that has the same records."""
        other = copy(self)
        other._client = client
        return other

    @abstractmethod
    def _put(self, collection: Collection) -> Iterable[Any]:
        """The results of storing the texts, in order."""

    @abstractmethod
    def _id(self, result: Any) -> str:
        """The id of a record that was stored."""

    @abstractmethod
    def _search(self, name: str, question: str) -> Iterable[str]:
        """The ids of the records found in a collection."""


class Documents(ServerSearch):
    def _put(self, collection: Collection) -> Iterable[Any]:
        return self._client.documents.put_many(
            Document(f"{collection.name}/{text.id}", text.content, text.metadata, scope=Scope(project=collection.name))
            for text in collection.texts
        )

    def _id(self, result: Any) -> str:
        return str(result.doc_id)

    def _search(self, name: str, question: str) -> Iterable[str]:
        answer = self._client.documents.search(question, limit=LIMIT, scope=Scope(project=name), view=View.IDS)
        return [match.doc_id for match in answer]


class Memories(ServerSearch):
    def _put(self, collection: Collection) -> Iterable[Any]:
        return self._client.memories.add_many(
            Memory(text.content, metadata=text.metadata, user=collection.name) for text in collection.texts
        )

    def _id(self, result: Any) -> str:
        return str(result.memory_id)

    def _search(self, name: str, question: str) -> Iterable[str]:
        answer = self._client.memories.search(question, limit=LIMIT, user=name, view=View.IDS)
        return [match.memory_id for match in answer]


class Facts(ServerSearch):
    area = "facts"

    def _put(self, collection: Collection) -> Iterable[Any]:
        return self._client.facts.put_many(
            Fact((self.area, collection.name), text.id, {"content": text.content}, text.metadata)
            for text in collection.texts
        )

    def _id(self, result: Any) -> str:
        return str(result.key)

    def _search(self, name: str, question: str) -> Iterable[str]:
        answer = self._client.facts.search(question, namespace=(self.area, name), limit=LIMIT, view=View.IDS)
        return [match.key for match in answer]


class Tool(Facts):
    """`search_memory`, read as a model reads it."""

    area = "tool"

    def _search(self, name: str, question: str) -> Iterable[str]:
        output = self._client.tools.call(
            "search_memory", {"query": question, "limit": LIMIT}, namespace=(self.area, name)
        )
        return [each["key"] for each in json.loads(output.content)]


class Statements(ServerSearch):
    def _put(self, collection: Collection) -> Iterable[Any]:
        return self._client.semantic.add_many(
            SemanticMemory(text.content, metadata=text.metadata, user=collection.name) for text in collection.texts
        )

    def _id(self, result: Any) -> str:
        return str(result.memory_id)

    def _search(self, name: str, question: str) -> Iterable[str]:
        answer = self._client.semantic.search(question, limit=LIMIT, user=name, view=View.IDS)
        return [match.memory_id for match in answer]


class Events(ServerSearch):
    """The timeline. The events of a collection happened in the last hours, a few seconds after each other."""

    def _put(self, collection: Collection) -> Iterable[Any]:
        began = datetime.now(UTC) - timedelta(hours=3)
        yield from self._client.timeline.add_many(
            EpisodicEvent(
                "conversation",
                text.content,
                event_id=f"{collection.name}/{text.id}",
                user=collection.name,
                event_time=began + timedelta(seconds=5 * number),
                metadata=text.metadata,
            )
            for number, text in enumerate(collection.texts)
        )
        # Until an event has a vector, it is found by its words alone.
        while self._client.timeline.status().text_pending_count:
            time.sleep(0.05)

    def _id(self, result: Any) -> str:
        return str(result.event_id)

    def _search(self, name: str, question: str) -> Iterable[str]:
        answer = self._client.timeline.search(question, limit=LIMIT, user=name, view=View.IDS)
        return [event.event_id for event in answer]


SEARCHES: dict[str, type[ServerSearch]] = {
    "documents": Documents,
    "memories": Memories,
    "facts": Facts,
    "tool": Tool,
    "statements": Statements,
    "events": Events,
}


class Vectors(Search):
    """The cosine of the first 256 tokens of a text: all that MiniLM reads."""

    def __init__(self, minilm: Embedder, kept: Path | None = None) -> None:
        """`kept` is a folder where vectors are kept for further runs."""
        self._minilm, self._kept = minilm, kept
        self.texts: dict[str, NDArray[np.float32]] = {}
        """The vectors of the texts, by collection."""

    def store(self, collection: Collection) -> None:
        self.texts[collection.name] = self._embed([text.content for text in collection.texts])

    def questions(self, collection: Collection) -> NDArray[np.float32]:
        """The vectors of the questions."""
        return self._embed([question.text for question in collection.questions])

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        if self._kept is None:
            return self._minilm.embed(texts)
        identity = json.dumps([self._minilm.model.identity, texts]).encode()
        file = self._kept / f"{hashlib.sha256(identity).hexdigest()}.npy"
        if not file.exists():
            np.save(file, self._minilm.embed(texts))
        return np.asarray(np.load(file), np.float32)

    def find(self, collection: Collection) -> list[list[str]]:
        near = self.questions(collection) @ self.texts[collection.name].T
        order = np.argsort(-near, axis=1, kind="stable")[:, :LIMIT]
        return [[collection.texts[row].id for row in rows] for rows in order]


class Chroma(Search):
    """A Chroma server with the vectors of the plain search, which stored them before."""

    def __init__(self, address: tuple[str, int], vectors: Vectors) -> None:
        host, port = address
        self._chroma = chromadb.HttpClient(host, port)
        self._vectors = vectors

    def store(self, collection: Collection) -> None:
        stored = self._chroma.create_collection(_chroma_name(collection), embedding_function=None)
        stored.add(
            ids=[text.id for text in collection.texts],
            embeddings=self._vectors.texts[collection.name],
            documents=[text.content for text in collection.texts],
        )

    def find(self, collection: Collection) -> list[list[str]]:
        stored = self._chroma.get_collection(_chroma_name(collection), embedding_function=None)
        answer = stored.query(query_embeddings=self._vectors.questions(collection), n_results=LIMIT, include=[])
        return list(answer["ids"])


def _chroma_name(collection: Collection) -> str:
    return f"set-{collection.name}"


class Words(Search):
    """BM25 of SQLite, with k1 1.2 and b 0.75, over English stems; stop words of a question do not count."""

    def __init__(self) -> None:
        self._ignored = frozenset(get_stop_words("en"))
        self._tables: dict[str, sqlite3.Connection] = {}

    def store(self, collection: Collection) -> None:
        table = self._tables[collection.name] = sqlite3.connect(":memory:")
        table.execute("CREATE VIRTUAL TABLE texts USING fts5(id UNINDEXED, content, tokenize='porter')")
        table.executemany("INSERT INTO texts VALUES (?, ?)", ((text.id, text.content) for text in collection.texts))

    def find(self, collection: Collection) -> list[list[str]]:
        table, found = self._tables[collection.name], []
        for question in collection.questions:
            words = [word for word in re.findall(r"\w+", question.text.lower()) if word not in self._ignored]
            either = " OR ".join(f'"{word}"' for word in words) or '""'
            rows = table.execute("SELECT id FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT ?", (either, LIMIT))
            found.append([row[0] for row in rows])
        return found
