"""How the files of other programs are imported: read lazily, and stored in bulk."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from mnemon._cli.imports.facts import labels_for
from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Place
from mnemon._errors import FactExistsError, InvalidArgumentError, MnemonError
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
    """How records become facts."""

    template: tuple[str, ...] | None
    has_embeddings: bool
    includes_ended: bool
    on_conflict: str


@dataclass(slots=True)
class ForeignImport:
    """Reads records ahead of the answers, remembers their places, and counts what is left out."""

    options: ForeignOptions
    left_out: Counter[str] = field(default_factory=Counter)
    _sent: deque[tuple[Place, str]] = field(default_factory=deque)
    _failed: deque[ImportResult] = field(default_factory=deque)

    def run(self, client: Client, records: Iterable[Found]) -> Iterator[ImportResult]:
        """Stores the records, and yields one result for each."""
        is_upsert = self.options.on_conflict == ImportConflict.REPLACE
        mode = facts.PutMode.UPSERT if is_upsert else facts.PutMode.CREATE
        for result in client.facts.put_many(self._facts(records), mode=mode):
            yield from self._failures()
            place, key = self._sent.popleft()
            yield self._result(place, result.key or key, result)
        yield from self._failures()

    def _facts(self, records: Iterable[Found]) -> Iterator[facts.FactLike]:
        for found in records:
            match found:
                case LeftOut():
                    self.left_out[found.reason] += found.count
                case Damaged():
                    self._fail(found.place, found.record_id, found.error)
                case Item() if found.ended and not self.options.includes_ended:
                    self.left_out[found.ended] += 1
                case Item():
                    try:
                        fact = self._fact(found)
                    except InvalidArgumentError as error:
                        self._fail(found.place, found.record.key, error)
                        continue
                    self._sent.append((found.place, fact.key))
                    with_vector = self.options.has_embeddings and found.embedding is not None
                    yield (fact, found.embedding or ()) if with_vector else fact

    def _fact(self, item: Item) -> facts.Fact:
        template = self.options.template
        return replace(item.record, namespace=labels_for(template, item.source)) if template else item.record

    def _fail(self, place: Place, record_id: str, error: MnemonError) -> None:
        self._failed.append(ImportResult(place.line, RecordKind.FACT, record_id, error=error, item=place.item))

    def _failures(self) -> Iterator[ImportResult]:
        while self._failed:
            yield self._failed.popleft()

    def _result(self, place: Place, key: str, result: facts.PutResult) -> ImportResult:
        error: MnemonError | None = result.error
        outcome = _OUTCOMES.get(result.receipt.outcome, ImportOutcome.UNKNOWN) if result.receipt else None
        if isinstance(error, FactExistsError) and self.options.on_conflict == ImportConflict.KEEP:
            error, outcome = None, ImportOutcome.KEPT
        return ImportResult(place.line, RecordKind.FACT, key, outcome=outcome, error=error, item=place.item)
