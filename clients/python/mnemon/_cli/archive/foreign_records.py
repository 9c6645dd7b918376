"""How the records of other systems are imported: as facts, read lazily and stored in bulk."""

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mnemon._cli.archive.files import foreign_records
from mnemon._errors import FactExistsError, InvalidArgumentError, MnemonError
from mnemon._mappings import SYSTEMS, FieldMapping, Mapped, labels_for, mapped
from mnemon._messages.documents import invalid
from mnemon._sync.client import Client
from mnemon._values import facts
from mnemon._values.archive import ImportConflict, ImportOutcome, ImportResult, RecordKind
from mnemon._values.documents import WriteOutcome

_OUTCOMES = {
    WriteOutcome.CREATED: ImportOutcome.CREATED,
    WriteOutcome.REPLACED: ImportOutcome.REPLACED,
    WriteOutcome.UNCHANGED: ImportOutcome.UNCHANGED,
}


@dataclass(frozen=True, slots=True)
class ForeignOptions:
    """The mapping of the records, and their namespace."""

    system: str | None
    mapping: FieldMapping | None
    template: tuple[str, ...] | None
    has_embeddings: bool
    on_conflict: str


@dataclass(slots=True)
class _Reading:
    """Reads records ahead of the answers, and remembers their lines."""

    path: str
    options: ForeignOptions
    sent: deque[tuple[int, str]] = field(default_factory=deque)
    failed: deque[ImportResult] = field(default_factory=deque)

    def items(self) -> Iterator[facts.FactLike]:
        """The facts; an invalid record is counted as failed."""
        for number, record in foreign_records(self.path):
            try:
                found = _mapped(record, self.options)
            except InvalidArgumentError as error:
                self.failed.append(ImportResult(number, RecordKind.FACT, _id_of(record), error=error))
                continue
            self.sent.append((number, found.fact.key))
            with_vector = self.options.has_embeddings and found.embedding is not None
            yield (found.fact, found.embedding or ()) if with_vector else found.fact


def import_foreign(client: Client, path: str, options: ForeignOptions) -> Generator[ImportResult, None, None]:
    """Stores the records of another system's export, and yields one result for each."""
    reading = _Reading(path, options)
    is_upsert = options.on_conflict == ImportConflict.REPLACE
    mode = facts.PutMode.UPSERT if is_upsert else facts.PutMode.CREATE
    for result in client.facts.put_many(reading.items(), mode=mode):
        while reading.failed:
            yield reading.failed.popleft()
        number, key = reading.sent.popleft()
        yield _result(number, result.key or key, result, options.on_conflict)
    yield from reading.failed


def _mapped(record: Any, options: ForeignOptions) -> Mapped:
    if not isinstance(record, dict):
        raise invalid("record", f"must be an object, not {str(record)[:40]!r}")
    if options.mapping is not None:
        found = mapped(record, options.mapping, ("imported",))
    else:
        found = SYSTEMS[options.system or ""](record)
    if options.template is None:
        return found
    return replace(found, fact=replace(found.fact, namespace=labels_for(options.template, record)))


def _id_of(record: object) -> str:
    """The id of an invalid record, if it has one."""
    names = (record.get(name) for name in ("id", "uuid", "key", "name")) if isinstance(record, dict) else ()
    return next((name for name in names if isinstance(name, str)), "")


def _result(number: int, key: str, result: facts.PutResult, on_conflict: str) -> ImportResult:
    error: MnemonError | None = result.error
    if isinstance(error, FactExistsError) and on_conflict == ImportConflict.KEEP:
        return ImportResult(number, RecordKind.FACT, key, outcome=ImportOutcome.KEPT)
    outcome = _OUTCOMES.get(result.receipt.outcome, ImportOutcome.UNKNOWN) if result.receipt else None
    return ImportResult(number, RecordKind.FACT, key, outcome=outcome, error=error)
