"""The part of an import that both clients share: which lines are records, and their results."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from mnemon import _archive_lines as lines
from mnemon._bulk import BulkMethod
from mnemon._enums import choice, members_by_number, numbers_by_member
from mnemon._json import read_json
from mnemon._messages.convert import invalid
from mnemon._status import error_from_item
from mnemon._values.archive import ImportConflict, ImportOutcome, ImportResult
from mnemon.shared.errors import IncompleteArchiveError, InvalidArgumentError, MnemonError
from mnemon.v1 import archive_pb2 as pb

_CONFLICTS_TO_PB = numbers_by_member(ImportConflict, pb.ImportConflict.DESCRIPTOR)
_OUTCOMES = members_by_number(ImportOutcome, pb.ImportOutcome.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its number: the JSON value, or what is wrong with it."""

    number: int
    value: Any
    error: InvalidArgumentError | None = None

    @classmethod
    def read(cls, number: int, given: object) -> "Line":
        """The line; a text is read as JSON."""
        if isinstance(given, Mapping):
            return cls(number, given)
        if not isinstance(given, str | bytes):
            return cls(number, None, invalid("line", f"must be an object or a text, not {type(given).__name__}"))
        try:
            return cls(number, read_json(given))
        except (ValueError, RecursionError) as error:
            return cls(number, None, invalid("line", f"is not JSON: {error}"))


class LineSorter:
    """Separates records from the header, which comes first, and the summary, which comes last."""

    def __init__(self) -> None:
        self.header: pb.ArchiveHeader | None = None
        self._number = 0
        self._is_complete = False

    def read(self, given: object) -> Line | None:
        """A record's line; None for any other."""
        self._number += 1
        if isinstance(given, str | bytes) and not given.strip():
            return None
        line = Line.read(self._number, given)
        if self._number == 1 and lines.is_header(line.value):
            self.header = lines.header_to_pb(line.value)
            return None
        if self.header is not None and lines.is_summary(line.value):
            self._is_complete = True
            return None
        return line

    def check_end(self) -> None:
        """Raises IncompleteArchiveError if an archive has no end."""
        if self.header is not None and not self._is_complete:
            raise IncompleteArchiveError(
                f"the archive was cut off behind line {self._number:,}: it has no summary; what was there is imported"
            )


class ImportRecords(BulkMethod[Line, ImportResult]):
    """Imports records. Use it once: it remembers the lines that it sent."""

    noun = "record"
    noun_plural = "records"
    batch_items_max = 500

    def __init__(self, sorter: LineSorter, *, on_conflict: str, embed_anew: bool, bridge_events: bool) -> None:
        conflict = choice("on_conflict", on_conflict, ImportConflict)
        self._sorter = sorter
        self._start = pb.ImportStart(
            on_conflict=_CONFLICTS_TO_PB[conflict], embed_anew=embed_anew, bridge_events=bridge_events
        )
        self._sent: deque[int] = deque()

    def request(self, given: Line) -> Message:
        """The record of a line."""
        if given.error is not None:
            raise given.error
        record = lines.record_to_pb(given.value)
        self._sent.append(given.number)
        return record

    def message(self, requests: Sequence[Message]) -> Message:
        """One message of the stream; each says how to import, since it may be the first of a new connection."""
        if self._sorter.header is not None:
            self._start.header.CopyFrom(self._sorter.header)
        return pb.ImportRecordsRequest(start=self._start, records=requests)  # type: ignore[arg-type]

    def result(self, position: int, request: pb.ArchivedRecord, answer: pb.ImportResult) -> ImportResult:
        """The result of one record."""
        place = self._sent.popleft(), lines.kind_of(request), request.id
        if answer.WhichOneof("outcome") == "done":
            return ImportResult(*place, outcome=_OUTCOMES.get(answer.done, ImportOutcome.UNKNOWN))
        return ImportResult(*place, error=error_from_item(answer.error))

    def failure(self, position: int, given: Line, error: MnemonError) -> ImportResult:
        """The result of a line that cannot be sent."""
        if self._sent and self._sent[-1] == given.number:
            self._sent.pop()
        return ImportResult(given.number, lines.id_of(given.value, "kind"), lines.id_of(given.value, "id"), error=error)
