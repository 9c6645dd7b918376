"""The part of a bulk stream that both clients share: batches, the order of results, and retries."""

import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from mnemon._authorization import Credential
from mnemon._channel import MESSAGE_BYTES_MAX
from mnemon._status import StreamLostError, is_busy
from mnemon.shared.errors import CallCancelledError, InternalError, MessageTooLargeError, MnemonError, UnavailableError

BATCH_ITEMS_MAX = 64
BATCH_BYTES_MAX = 512 << 10
BATCHES_IN_FLIGHT_MAX = 4
ANSWER_TIMEOUT_S = 120.0

# Room for the rest of a message around one item.
_ITEM_BYTES_MAX = MESSAGE_BYTES_MAX - 4096

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class BulkMethod(ABC, Generic[_Given, _Result]):
    """The part of a bulk stream that depends on the method: its messages, items and results."""

    noun: str
    noun_plural: str
    batch_items_max = BATCH_ITEMS_MAX

    @abstractmethod
    def request(self, given: _Given) -> Message:
        """The request of one item. Raises MnemonError if it cannot be sent."""

    @abstractmethod
    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream."""

    @abstractmethod
    def result(self, position: int, request: Any, answer: Any) -> _Result:
        """The result of one item that was sent; `position` is its position among all items."""

    @abstractmethod
    def failure(self, position: int, given: _Given, error: MnemonError) -> _Result:
        """The result of an item that cannot be sent."""


@dataclass(frozen=True, slots=True)
class Unsent(Generic[_Result]):
    """The result of an item that cannot be sent."""

    result: _Result


@dataclass
class Batch(Generic[_Result]):
    """A run of items, sent as one message and answered by one. A retry sends the same message."""

    method: BulkMethod[Any, _Result]
    start: int
    """The position of the first item among all."""
    entries: list[Message | Unsent[_Result]] = field(default_factory=list)
    size_bytes: int = 0

    @cached_property
    def request(self) -> Message | None:
        """The message; None if no item can be sent. Only for complete batches."""
        sendable = [entry for entry in self.entries if not isinstance(entry, Unsent)]
        return self.method.message(sendable) if sendable else None

    def results(self, response: Any) -> list[_Result]:
        """One result per item, in order; `response` is None if nothing was sent."""
        answers = iter(response.results if response else ())
        found = [
            entry.result if isinstance(entry, Unsent) else self._read(position, entry, next(answers, None))
            for position, entry in enumerate(self.entries, self.start)
        ]
        if next(answers, None) is not None:
            raise InternalError(f"the server answered more {self.method.noun_plural} than it was sent")
        return found

    def _read(self, position: int, request: Message, answer: Any) -> _Result:
        if answer is None:
            raise InternalError(f"the server answered fewer {self.method.noun_plural} than it was sent")
        return self.method.result(position, request, answer)


class Batcher(Generic[_Given, _Result]):
    """Groups items into batches limited by count and bytes."""

    def __init__(self, method: BulkMethod[_Given, _Result]) -> None:
        self._method = method
        self._batch = Batch(method, 0)

    def add(self, given: _Given) -> Batch[_Result] | None:
        """Adds an item, and returns a batch when one is full."""
        batch = self._batch
        entry = self._entry(batch.start + len(batch.entries), given)
        size_bytes = 0 if isinstance(entry, Unsent) else entry.ByteSize()
        full = None
        if batch.entries and not self._has_room(size_bytes):
            full = self.rest()
        self._batch.entries.append(entry)
        self._batch.size_bytes += size_bytes
        return full

    def rest(self) -> Batch[_Result] | None:
        """The unfinished batch; None if it is empty."""
        batch = self._batch
        self._batch = Batch(self._method, batch.start + len(batch.entries))
        return batch if batch.entries else None

    def all(self, items: Iterable[_Given]) -> Iterator[Batch[_Result]]:
        """The batches of all items, each one as soon as it is full."""
        for given in items:
            if batch := self.add(given):
                yield batch
        if batch := self.rest():
            yield batch

    def _has_room(self, size_bytes: int) -> bool:
        batch = self._batch
        return len(batch.entries) < self._method.batch_items_max and batch.size_bytes + size_bytes <= BATCH_BYTES_MAX

    def _entry(self, position: int, given: _Given) -> Message | Unsent[_Result]:
        try:
            request = self._method.request(given)
        except MnemonError as error:
            return Unsent(self._method.failure(position, given, error))
        if request.ByteSize() > _ITEM_BYTES_MAX:
            return Unsent(self._method.failure(position, given, _too_large(self._method.noun, request.ByteSize())))
        return request


class Resumption(Generic[_Result]):
    """Batches sent and not yet answered, and how long to wait before a broken stream is resumed.

    A stream that was never answered is tried four times, so that a wrong address is reported within a second. One that
    was answered before is retried for about half a minute, which is enough for a restart of the server. A server that
    is busy is asked again for as long as one answer may take.
    """

    def __init__(self, timeout: float | None, credential: Credential | None = None) -> None:
        """`timeout`: seconds that one answer may take; None for an infinite time."""
        self._credential, self._is_renewed = credential or Credential(), False
        self.pending: deque[Batch[_Result]] = deque()
        self._timeout = timeout
        self._failures = 0
        self._attempts_max = 4
        self._busy_since: float | None = None

    @property
    def has_room(self) -> bool:
        """True while another batch may be sent."""
        return len(self.pending) < BATCHES_IN_FLIGHT_MAX

    def answered(self) -> Batch[_Result]:
        """Removes the oldest batch, which was answered."""
        self._failures, self._is_renewed = 0, False
        self._attempts_max = 20
        self._busy_since = None
        return self.pending.popleft()

    def wait_after(self, broken: StreamLostError) -> float:
        """Seconds to wait before the next try. Raises the error if there is no next try."""
        error = broken.error
        if not self._is_renewed and self._credential.may_renew(error.reason):
            self._is_renewed = True
            return 0.0
        self._failures += 1
        pause_s: float = min(0.1 * 2 ** min(self._failures - 1, 10), 2.0)
        # Streams that were refused together must not come back together.
        pause_s = max(error.retry_after or 0.0, pause_s) * random.uniform(1.0, 1.2)  # noqa: S311 -- no secret
        if is_busy(error):
            again = self._has_time(pause_s)
        else:
            # The server cancels calls when it shuts down; no one cancels them on this side.
            passing = isinstance(error, UnavailableError | CallCancelledError) or error.reason == "SLOW_READER"
            again = passing and self._failures < self._attempts_max
        if not again:
            raise error from broken
        return pause_s

    def _has_time(self, pause_s: float) -> bool:
        now = time.monotonic()
        if self._busy_since is None:
            self._busy_since = now
        return self._timeout is None or now + pause_s < self._busy_since + self._timeout


def _too_large(noun: str, size_bytes: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"the {noun} has {size_bytes:,} bytes, and a message holds {_ITEM_BYTES_MAX:,} at most",
        reason="MESSAGE_TOO_LARGE",
    )
