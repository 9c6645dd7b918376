"""How the files of other programs are imported: read lazily, and stored in bulk."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from mnemon._cli.archive.files import GivenFile
from mnemon._cli.documents.others import without_those_of_others
from mnemon._cli.documents.sources import FILE_NAME, FOLDER, folder_name
from mnemon._cli.imports.facts import labels_for
from mnemon._cli.imports.forms import Form
from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Place
from mnemon._cli.options import STDIN
from mnemon._messages.convert import invalid
from mnemon._sync.client import Client
from mnemon._values.archive import ImportConflict, ImportOutcome, ImportResult, RecordKind
from mnemon._values.documents import Document, IndexResult, Scope, WriteOutcome
from mnemon._values.facts import Fact, FactLike, PutMode, PutResult
from mnemon.shared.errors import FactExistsError, InvalidArgumentError, MnemonError

_OUTCOMES = {
    WriteOutcome.CREATED: ImportOutcome.CREATED,
    WriteOutcome.REPLACED: ImportOutcome.REPLACED,
    WriteOutcome.UNCHANGED: ImportOutcome.UNCHANGED,
}


@dataclass(frozen=True, slots=True)
class ForeignOptions:
    """How records are stored."""

    on_conflict: str = ImportConflict.REPLACE
    include_ended: bool = False
    template: tuple[str, ...] | None = None
    """The namespace of facts."""
    embeddings: bool = False
    """Whether to use the vectors of facts."""
    scope: Scope = field(default_factory=Scope)
    """The scope of documents."""
    id_prefix: str = ""
    """The beginning of the ids of documents."""
    take_over: bool = False
    """Whether to replace documents of other scopes and folders."""


def _document_of(item: Item) -> Document:
    """The record as a document."""
    if not isinstance(item.record, Document):
        raise TypeError(f"{item.record!r} is not a document")
    return item.record


@dataclass(slots=True)
class ForeignImport:
    """Reads records ahead of the answers, remembers their places, and counts skipped parts."""

    form: Form
    file: GivenFile
    options: ForeignOptions
    left_out: Counter[str]
    """The number of skipped parts, by reason."""
    _sent: deque[tuple[Place, str]] = field(default_factory=deque)
    _failed: deque[ImportResult] = field(default_factory=deque)

    def run(self, client: Client, records: Iterable[Found]) -> Iterator[ImportResult]:
        """Stores the records, and yields one result for each."""
        for result in self._stored(client, self._items(records)):
            yield from self._failures()
            place, record_id = self._sent.popleft()
            yield self._result(place, record_id, result)
        yield from self._failures()

    def _stored(self, client: Client, items: Iterator[Item]) -> Iterator[PutResult | IndexResult]:
        if self.form.has_documents:
            if not self.options.take_over:
                items = without_those_of_others(client, items, _document_of, self.options.scope, self._refuse)
            return client.documents.put_many(map(_document_of, self._sending(items)), scope=self.options.scope)
        is_upsert = self.options.on_conflict == ImportConflict.REPLACE
        mode = PutMode.UPSERT if is_upsert else PutMode.CREATE
        sent = self._sending(items)
        facts = (self._with_vector(item.record, item) for item in sent if isinstance(item.record, Fact))
        return client.facts.put_many(facts, mode=mode)

    def _sending(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            self._sent.append((item.place, item.record_id))
            yield item

    def _refuse(self, item: Item, problem: str) -> None:
        self._fail(item.place, item.record_id, invalid("doc_id", problem))

    def _with_vector(self, fact: Fact, item: Item) -> FactLike:
        return (fact, item.embedding) if self.options.embeddings and item.embedding is not None else fact

    def _items(self, records: Iterable[Found]) -> Iterator[Item]:
        """The records to store; skipped parts are counted, and damaged ones reported."""
        for found in records:
            match found:
                case LeftOut():
                    self.left_out[found.reason] += found.count
                case Damaged():
                    self._fail(found.place, found.record_id, found.error)
                case Item() if found.ended and not self.options.include_ended:
                    self.left_out[found.ended] += 1
                case Item():
                    try:
                        item = self._placed(found)
                    except InvalidArgumentError as error:
                        self._fail(found.place, found.record_id, error)
                        continue
                    yield item

    def _placed(self, item: Item) -> Item:
        """The record in the namespace of the options, or under an id with their prefix."""
        if isinstance(item.record, Document):
            return replace(item, record=self._named(item.record))
        if self.options.template is None:
            return item
        labels = labels_for(self.options.template, item.source)
        return replace(item, record=replace(item.record, namespace=labels))

    def _named(self, document: Document) -> Document:
        """The document with the prefix of ids; it knows its file if its id begins with that."""
        metadata = document.metadata
        if self.file.path != STDIN and f"{document.doc_id}/".startswith(f"{self.file.name}/"):
            path = Path(self.file.path)
            metadata = {FOLDER: folder_name(path.parent), FILE_NAME: path.name, **metadata}
        return replace(document, doc_id=self.options.id_prefix + document.doc_id, metadata=metadata)

    def _fail(self, place: Place, record_id: str, error: MnemonError) -> None:
        self._failed.append(ImportResult(place.line, self._kind, record_id, error=error, item=place.item))

    def _failures(self) -> Iterator[ImportResult]:
        while self._failed:
            yield self._failed.popleft()

    def _result(self, place: Place, record_id: str, result: PutResult | IndexResult) -> ImportResult:
        error: MnemonError | None = result.error
        outcome = _OUTCOMES.get(result.receipt.outcome, ImportOutcome.UNKNOWN) if result.receipt else None
        if isinstance(error, FactExistsError) and self.options.on_conflict == ImportConflict.KEEP:
            error, outcome = None, ImportOutcome.KEPT
        stored_id = result.receipt.id if result.receipt else record_id
        return ImportResult(place.line, self._kind, stored_id, outcome=outcome, error=error, item=place.item)

    @property
    def _kind(self) -> RecordKind:
        return RecordKind.DOCUMENT if self.form.has_documents else RecordKind.FACT
