"""What both clients share of a bulk stream: batches, the order of results, and how patiently to resume."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from mnemon import _requests as requests
from mnemon import _values as values
from mnemon._channel import MESSAGE_BYTES_MAX
from mnemon._convert import receipt_from_pb
from mnemon._errors import InternalError, MessageTooLargeError, MnemonError, UnavailableError
from mnemon._status import error_from_item
from mnemon.v1 import knowledge_store_pb2 as pb

BATCH_DOCUMENTS_MAX = 64
BATCH_BYTES_MAX = 512 << 10
BATCHES_IN_FLIGHT_MAX = 4
ANSWER_TIMEOUT_S = 120.0

# Room for what surrounds one document in a message.
_DOCUMENT_BYTES_MAX = MESSAGE_BYTES_MAX - 4096

# Reasons of a refusal that another try mends, because what it sends is less or comes later.
_PASSING = ("TOO_MANY_REQUESTS", "SLOW_READER")

Entry: TypeAlias = pb.IndexDocumentRequest | values.IndexResult
"""A document to send, or the result of one that cannot be sent."""


class StreamBrokenError(Exception):
    """A stream ended before all that was sent was answered."""

    def __init__(self, error: MnemonError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class Batch:
    """A run of documents, sent as one message and answered by one; sent again it is the same message."""

    entries: list[Entry] = field(default_factory=list)
    size_bytes: int = 0

    @cached_property
    def request(self) -> pb.IndexDocumentsRequest | None:
        """The message, None where nothing can be sent; not to be asked for before the batch is complete."""
        sendable = [entry for entry in self.entries if isinstance(entry, pb.IndexDocumentRequest)]
        return pb.IndexDocumentsRequest(requests=sendable) if sendable else None

    def results(self, response: pb.IndexDocumentsResponse | None) -> list[values.IndexResult]:
        """One result per document, in order."""
        answers = iter(response.results if response else ())
        found = [
            entry if isinstance(entry, values.IndexResult) else _read(next(answers, None)) for entry in self.entries
        ]
        if next(answers, None) is not None:
            raise InternalError("the server answered more documents than it was sent")
        return found


class Batcher:
    """Gathers documents into batches bounded by count and bytes."""

    def __init__(self, *, scope: values.Scope | None, ack: str) -> None:
        self._scope, self._ack = scope, ack
        self._batch = Batch()

    def add(self, given: requests.DocumentLike) -> Batch | None:
        """Takes a document, and returns a batch where one became full."""
        entry = self._entry(given)
        size_bytes = entry.ByteSize() if isinstance(entry, pb.IndexDocumentRequest) else 0
        full = None
        batch = self._batch
        if len(batch.entries) == BATCH_DOCUMENTS_MAX or (
            batch.entries and batch.size_bytes + size_bytes > BATCH_BYTES_MAX
        ):
            full = self.rest()
        self._batch.entries.append(entry)
        self._batch.size_bytes += size_bytes
        return full

    def rest(self) -> Batch | None:
        """What has been gathered so far, None where that is nothing."""
        batch, self._batch = self._batch, Batch()
        return batch if batch.entries else None

    def all(self, documents: Iterable[requests.DocumentLike]) -> Iterator[Batch]:
        """The batches of all documents, each one as soon as it is full."""
        for document in documents:
            if batch := self.add(document):
                yield batch
        if batch := self.rest():
            yield batch

    def _entry(self, given: requests.DocumentLike) -> Entry:
        try:
            request = requests.index_document_like(given, scope=self._scope, ack=self._ack)
        except MnemonError as error:
            return values.IndexResult(requests.id_of(given), error=error)
        if request.ByteSize() > _DOCUMENT_BYTES_MAX:
            return values.IndexResult(request.document.doc_id, error=_too_large(request.ByteSize()))
        return request


class Resumption:
    """Batches sent and not yet answered, and how long to wait before a broken stream is taken up again.

    A stream that was never answered is tried four times, so that a wrong address is told within a second. One that was
    answered before is tried again for about half a minute without any answer, which a restart of the server fits into.
    """

    def __init__(self) -> None:
        self.pending: deque[Batch] = deque()
        self._failures = 0
        self._attempts_max = 4

    @property
    def has_room(self) -> bool:
        """True while another batch may be sent."""
        return len(self.pending) < BATCHES_IN_FLIGHT_MAX

    def answered(self) -> Batch:
        """Takes the oldest batch off, because its answer is there."""
        self._failures = 0
        self._attempts_max = 20
        return self.pending.popleft()

    def wait_after(self, broken: StreamBrokenError) -> float:
        """Seconds to wait before the next try; raises the error where there is none."""
        self._failures += 1
        hint = broken.error.retry_after
        again = isinstance(broken.error, UnavailableError) or broken.error.reason in _PASSING
        if not again or self._failures >= self._attempts_max:
            raise broken.error from broken
        pause_s: float = min(0.1 * 2 ** (self._failures - 1), 2.0)
        return max(hint or 0.0, pause_s)


def _read(result: pb.IndexDocumentResult | None) -> values.IndexResult:
    if result is None:
        raise InternalError("the server answered fewer documents than it was sent")
    if result.WhichOneof("outcome") == "receipt":
        return values.IndexResult(result.doc_id, receipt=receipt_from_pb(result.receipt))
    return values.IndexResult(result.doc_id, error=error_from_item(result.error))


def _too_large(size_bytes: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"the document has {size_bytes:,} bytes, and a message holds {_DOCUMENT_BYTES_MAX:,} at most",
        reason="MESSAGE_TOO_LARGE",
    )
