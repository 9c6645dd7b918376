"""The memories of the measurement of growth: any range of them is drawn alike, in every run and process."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from mnemon.v1 import memory_pb2

from tests.bench.texts import written
from tests.bench.vectors import TopicalVectors, Vectors

DIMENSION = 384
USER_SIZE = 500
"""The memories of one user; those of all users interleave."""

TOPICS = 100
"""A filter by `metadata.topic` keeps one memory in so many."""

QUERIES, LIMIT = 100, 10
BATCH = 200
_BLOCK = 10_000
_SEED = 16
_QUERY_SEED = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Memories from number `start` on."""

    start: int
    texts: list[str]
    vectors: Vectors

    def since(self, number: int) -> "Block | None":
        """What it has from this memory on, if anything."""
        skipped = max(number - self.start, 0)
        return (
            Block(self.start + skipped, self.texts[skipped:], self.vectors[skipped:])
            if skipped < len(self.texts)
            else None
        )

    def until(self, number: int) -> "Block | None":
        """What it has before this memory, if anything."""
        count = number - self.start
        return Block(self.start, self.texts[:count], self.vectors[:count]) if count > 0 else None

    def messages(self, users: int) -> Iterator[memory_pb2.BulkCreateMemoriesRequest]:
        """The messages that store them, for so many users in all."""
        for first in range(0, len(self.texts), BATCH):
            numbers = range(first, min(first + BATCH, len(self.texts)))
            yield memory_pb2.BulkCreateMemoriesRequest(requests=[self.create_request(i, users) for i in numbers])

    def create_request(self, place: int, users: int) -> memory_pb2.CreateMemoryRequest:
        """The call that stores the memory at this place of the block."""
        number = self.start + place
        memory = memory_pb2.Memory(memory_id=memory_id(number), content=self.texts[place], type="preference")
        memory.scope.user = f"u{number * 7919 % users}"
        memory.metadata["topic"].int_value = number * 31 % TOPICS
        return memory_pb2.CreateMemoryRequest(memory=memory, embedding=self.vectors[place].tolist())


@dataclass(frozen=True)
class Corpus:
    """Texts of 24 words by Zipf's law, with vectors around topics, or those of a file as far as it goes."""

    file: Path | None = None

    def blocks(self, start: int, stop: int) -> Iterator[Block]:
        """The memories from `start` to `stop`."""
        for first in range(start - start % _BLOCK, stop, _BLOCK):
            seed = _SEED + 1 + first // _BLOCK
            texts, vectors = written(seed).next_texts(_BLOCK), self._vectors(first, seed)
            inside = slice(max(start - first, 0), stop - first)
            yield Block(first + inside.start, texts[inside], vectors[inside])

    @cached_property
    def query_texts(self) -> list[str]:
        """Texts that are searched for."""
        return written(_QUERY_SEED).next_queries(QUERIES)

    @cached_property
    def query_vectors(self) -> Vectors:
        """Vectors that are searched for; none of them is stored."""
        if self._real is not None:
            return np.asarray(self._real[-QUERIES:], np.float32)
        return self._topical.draw(QUERIES, np.random.default_rng(_QUERY_SEED))

    def _vectors(self, first: int, seed: int) -> Vectors:
        real = np.empty((0, DIMENSION), np.float32)
        if self._real is not None:
            real = np.asarray(self._real[first : min(first + _BLOCK, len(self._real) - QUERIES)], np.float32)
        return np.concatenate([real, self._topical.draw(_BLOCK - len(real), np.random.default_rng(seed))])

    @cached_property
    def _real(self) -> Vectors | None:
        return None if self.file is None else np.load(self.file, mmap_mode="r")

    @cached_property
    def _topical(self) -> TopicalVectors:
        return TopicalVectors(DIMENSION, _SEED)


class ExactAnswers:
    """The nearest stored vectors of each query, by comparing all."""

    def __init__(self, queries: Vectors) -> None:
        self._queries = queries
        self._scores = np.full((len(queries), LIMIT), -np.inf, np.float32)
        self.numbers = np.full((len(queries), LIMIT), -1)
        """Of shape (queries, LIMIT), in no particular order."""

    def add(self, block: Block) -> None:
        """Compares further memories."""
        scores = np.concatenate([self._scores, self._queries @ block.vectors.T], axis=1)
        added = np.tile(np.arange(block.start, block.start + len(block.vectors)), (len(scores), 1))
        numbers = np.concatenate([self.numbers, added], axis=1)
        best = np.argpartition(-scores, LIMIT, axis=1)[:, :LIMIT]
        self._scores = np.take_along_axis(scores, best, axis=1)
        self.numbers = np.take_along_axis(numbers, best, axis=1)

    def recall(self, found: list[list[int]]) -> float:
        """The mean share of the nearest that was found."""
        pairs = zip(self.numbers.tolist(), found, strict=True)
        return float(np.mean([len(set(exact) & set(one)) / LIMIT for exact, one in pairs]))


def memory_id(number: int) -> str:
    """The id of a memory."""
    return f"00000000-0000-4000-8000-{number:012x}"


def memory_number(memory_id: str) -> int:
    """The number of a memory, from its id."""
    return int(memory_id[-12:], 16)
