"""Episodic events for a measurement: many users, spread over the past days, generated from a seed."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from mnemon.v1 import episodic_pb2

TYPES = ("conversation", "conversation", "conversation", "task", "reminder", "emotion", "preference")
_TEXT = (
    "asked about the garden plan and the blue door; wants a reminder on Monday before the train leaves, with the list"
    " of seeds from last year, the address of the shop near the river and the number of the neighbour who has the key"
)
WORDS = _TEXT.split()
DAY_US = 86_400 * 1_000_000
_TEXTS_AT_ONCE = 10_000


class TimelineEvents:
    """`count` numbered events of `users`. Higher numbers happened later."""

    def __init__(
        self, count: int, users: int, days: int, seed: int, next_texts: Callable[[int], list[str]] | None = None
    ) -> None:
        """`next_texts` returns that many contents; without it, they are drawn from 43 words."""
        self.count, self.users = count, users
        self._next_texts = next_texts
        self._texts: list[str] = []
        self._random = random.Random(seed)
        self._start_us = int(datetime.now(UTC).timestamp() * 1e6) - days * DAY_US
        self._step_us = days * DAY_US // max(count, 1)

    def user(self, number: int) -> str:
        """A user's name."""
        return f"user-{number % self.users:05d}"

    def event(self, number: int) -> episodic_pb2.EpisodicEvent:
        """The event with a number. The server chooses its id. All times are distinct."""
        draw = self._random
        event = episodic_pb2.EpisodicEvent(
            event_type=draw.choice(TYPES), content=self._content(), importance=draw.random(), source="conversation"
        )
        event.scope.user = self.user(draw.randrange(self.users))
        event.scope.persona = f"persona-{draw.randrange(2)}"
        event.event_time.FromMicroseconds(self._start_us + number * self._step_us)
        return event

    def _content(self) -> str:
        if self._next_texts is None:
            return " ".join(self._random.choices(WORDS, k=self._random.randint(8, 32)))
        if not self._texts:
            self._texts = self._next_texts(_TEXTS_AT_ONCE)
        return self._texts.pop()

    def batches(self, first: int, count: int, size: int) -> Iterator[list[episodic_pb2.EpisodicEvent]]:
        """Runs of events, starting with number `first`."""
        for start in range(first, first + count, size):
            yield [self.event(number) for number in range(start, min(start + size, first + count))]
