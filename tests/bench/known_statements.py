"""Statements about many users, as messages for a server and as arrays for an exact scan."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from mnemon.v1 import common_pb2, semantic_pb2
from numpy.typing import NDArray

from tests.bench.vectors import Vectors, topical_vectors

DIMENSION = 384
PER_SUBJECT = 4
"""Statements of a user about one subject: similar, at a cosine of about 0.86."""
TOP_K, MIN_SIMILARITY = 3, 0.7
_SPREAD, _CLOSE = 0.4, 0.2
_START = datetime(2026, 1, 1, tzinfo=UTC)
_SOURCES = ("user", "conversation", "skill", "system", "inferred")


@dataclass(frozen=True, slots=True)
class Search:
    """A vector, and the filter for its nearest statements by user and other fields. None means any."""

    user: int
    vector: Vectors
    persona: int | None = None
    window: tuple[int, int] | None = None
    """From this to this statement of the user, both included."""

    def request(self) -> semantic_pb2.SearchSimilarRequest:
        """The same as a message."""
        request = semantic_pb2.SearchSimilarRequest(vector=self.vector.tolist(), limit=TOP_K, min_score=MIN_SIMILARITY)
        request.filter.scope.user = _user(self.user)
        if self.persona is not None:
            request.filter.scope.persona = _persona(self.persona)
        if self.window is not None:
            request.filter.created.start_time.FromDatetime(_time(self.window[0]))
            request.filter.created.end_time.FromDatetime(_time(self.window[1]))
        return request


class KnownStatements:
    """An equal number of statements for every user, numbered from 0. Users take turns."""

    def __init__(self, count: int, users: int, seed: int) -> None:
        """Generates everything from the seed. `count` is a multiple of `users` times PER_SUBJECT."""
        self.count, self.users = count, users
        self._rng = np.random.default_rng(seed)
        self._subjects = count // users // PER_SUBJECT
        centres = topical_vectors(users * self._subjects, DIMENSION, seed)
        numbers = np.arange(count)
        self.vectors = self._near(centres[self._subject_rows(numbers)], _SPREAD)
        self._importance = self._rng.integers(0, 11, 3 * count) / 10
        self._centres = centres

    def save_request(self, number: int) -> semantic_pb2.SaveSemanticMemoryRequest:
        """The statement of this number."""
        return self._message(number, number, self.vectors[number])

    def similar_requests(
        self, numbers: NDArray[np.int64], first: int, policy: semantic_pb2.ConflictPolicy
    ) -> list[semantic_pb2.SaveSemanticMemoryRequest]:
        """New statements, numbered from `first`, each of which nearly repeats a known one."""
        requests = []
        for i, vector in enumerate(self._near(self.vectors[numbers], _CLOSE)):
            requests.append(self._message(int(numbers[i]), first + i, vector))
            requests[-1].conflict_policy = policy
        return requests

    def draw(self, count: int) -> NDArray[np.int64]:
        """Numbers of different statements."""
        return self._rng.choice(self.count, count, replace=False)

    def search(self, *, narrow: bool) -> Search:
        """A search about a subject of a user. If `narrow`, limited to one persona and half of the time."""
        user, per_user = int(self._rng.integers(self.users)), self._subjects * PER_SUBJECT
        window = (per_user // 4, per_user * 3 // 4 - 1)
        subject = int(self._rng.integers(window[0] // PER_SUBJECT + 1, window[1] // PER_SUBJECT))
        [vector] = self._near(self._centres[[user * self._subjects + subject]], _SPREAD)
        return Search(user, vector, subject % 2, window) if narrow else Search(user, vector)

    def _near(self, vectors: Vectors, spread: float) -> Vectors:
        noise = self._rng.normal(size=vectors.shape) * spread / np.sqrt(DIMENSION)
        moved = vectors + noise
        near: Vectors = (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)
        return near

    def _subject_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers % self.users * self._subjects + numbers // self.users // PER_SUBJECT

    def _message(self, about: int, number: int, vector: Vectors) -> semantic_pb2.SaveSemanticMemoryRequest:
        """Statement `number`, on the subject of statement `about` and of the same user."""
        user, subject = about % self.users, about // self.users // PER_SUBJECT
        memory = semantic_pb2.SemanticMemory(
            content=f"Statement {number} of the user. It is about subject {subject}, and says what {about} does.",
            summary=f"Subject {subject}.",
            scope=common_pb2.Scope(user=_user(user), household=f"household-{user // 4}", persona=_persona(subject % 2)),
            importance=float(self._importance[number % len(self._importance)]),
            keywords=[f"subject{subject}", f"detail{about}", f"statement{number}"],
            source=_SOURCES[number % len(_SOURCES)],
        )
        memory.create_time.FromDatetime(_time(number // self.users))
        return semantic_pb2.SaveSemanticMemoryRequest(memory=memory, embedding=vector.tolist())


class UserScan:
    """The data for an exact answer: the vectors of each user in one array."""

    def __init__(self, known: KnownStatements) -> None:
        self._numbers = [np.arange(user, known.count, known.users) for user in range(known.users)]
        self._vectors = [known.vectors[numbers] for numbers in self._numbers]
        places = np.arange(known.count // known.users)
        self._places, self._personas = places, places // PER_SUBJECT % 2

    def nearest(self, search: Search) -> list[int]:
        """Numbers of the statements that a search must find, most similar first."""
        similarities = self._vectors[search.user] @ search.vector
        kept = similarities >= MIN_SIMILARITY
        if search.persona is not None:
            kept &= self._personas == search.persona
        if search.window is not None:
            kept &= (self._places >= search.window[0]) & (self._places <= search.window[1])
        rows = np.flatnonzero(kept)
        best = rows[np.argsort(-similarities[rows], kind="stable")[:TOP_K]]
        return [int(number) for number in self._numbers[search.user][best]]


def number_of(memory: semantic_pb2.SemanticMemory) -> int:
    """The number of a statement from its request."""
    return int(memory.content.split(maxsplit=2)[1])


def _user(user: int) -> str:
    return f"user-{user}"


def _persona(persona: int) -> str:
    return f"persona-{persona}"


def _time(place: int) -> datetime:
    return _START + timedelta(hours=place)
