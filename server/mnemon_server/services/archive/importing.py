"""How records come into a vault: they are checked, get their vectors, and are written in large transactions."""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mnemon_server.domain.archive import RECORDS_MAX, ArchivedRecord, ImportConflict, ImportOutcome, ImportStart
from mnemon_server.domain.clock import EPOCH, Clock
from mnemon_server.domain.collections import RULES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import (
    EventExistsError,
    IndexingError,
    InvalidArgumentError,
    InvalidOperationError,
    MnemonError,
)
from mnemon_server.domain.events import Event, EventReceipt
from mnemon_server.domain.kinds import COLLECTION_OF, EMBEDDED, RecordKind
from mnemon_server.domain.rules import RuleDict
from mnemon_server.domain.validation import refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.promises.values import PassageInput, RecordStamps
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.archive.records import RECORD, checked_document, stamp_violations, without_given_vector
from mnemon_server.services.archive.vectors import embedded_passages, given_passages
from mnemon_server.services.archive.writes import ImportResult, Incoming, decided, store
from mnemon_server.services.background.offload import Offload, completion, transacted
from mnemon_server.services.events.checks import event_violations
from mnemon_server.services.events.new_events import to_utc
from mnemon_server.services.rules.rule_set import RuleSet
from mnemon_server.services.rules.schema import checked_rule, rule_json
from mnemon_server.services.rules.store import PLACE, RuleStore
from mnemon_server.services.semantic.health import Capacity
from mnemon_server.services.writing.tombstones import erased_events
from mnemon_server.wire.events import decode

# How merge rules are imported: together, since they extend one another, and in the order of their places.


@dataclass(frozen=True, slots=True)
class IncomingRule:
    """A rule that was checked, with its place in the order of registration."""

    rule: RuleDict
    place: int
    stamps: RecordStamps | None

    @property
    def name(self) -> str:
        """The rule's name, which is its record's id."""
        return str(self.rule["name"])


def checked_rule_record(given: Document, stamps: RecordStamps | None) -> IncomingRule:
    """The rule that a record stands for.

    Raises:
        InvalidArgumentError: it is not a rule; names what is wrong.
    """
    refuse(stamp_violations(given))
    try:
        rule = checked_rule(json.loads(given.content), f"{RECORD}.content")
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError.of(f"{RECORD}.content", "must be the JSON of a rule") from error
    if rule["name"] != given.doc_id:
        raise InvalidArgumentError.of(f"{RECORD}.id", "must be the rule's name")
    place = given.metadata.get(PLACE)
    return IncomingRule(rule, place if isinstance(place, int) else 0, stamps)


def store_rules(
    tx: VaultTransaction, store: RuleStore, rules: Sequence[IncomingRule], policy: ImportConflict, version: int
) -> list[ImportResult]:
    """Loads rules; an invalid rule fails alone; an empty set gets the `version`."""
    known = tx.collection(RULES).get_documents([each.name for each in rules])
    results: dict[int, ImportResult] = {}
    for number, (each, stored) in enumerate(zip(rules, known, strict=True)):
        if stored is not None:
            # The set decides the order of rules.
            document = Document(each.name, rule_json(each.rule), metadata=stored.metadata)
            outcome = decided(stored, document, each.stamps, policy)
            if outcome is not None:
                results[number] = outcome
    wanted = sorted(set(range(len(rules))) - results.keys(), key=lambda number: rules[number].place)
    before = store.rules_in(tx)
    after, failed = _loaded(before, {number: rules[number].rule for number in wanted})
    if after is not before:
        if before == RuleSet({}) and before.version == 1:
            after = RuleSet(after.rules, max(after.version, version))
        stamps = {rules[number].name: given for number in wanted if (given := rules[number].stamps)}
        store.write_in(tx, before, after, stamps)
    for number in wanted:
        is_new = known[number] is None
        results[number] = failed.get(number) or (ImportOutcome.CREATED if is_new else ImportOutcome.REPLACED)
    return [results[number] for number in range(len(rules))]


def _loaded(known: RuleSet, rules: Mapping[int, RuleDict]) -> tuple[RuleSet, dict[int, MnemonError]]:
    """The known rules and the new ones that fit, and the errors of the others by number."""
    with suppress(MnemonError):
        return known.loaded([*rules.values()]), {}
    # One by one, and again as long as that helps: a base may come after a rule that extends it.
    failed: dict[int, MnemonError] = {}
    waiting = dict(rules)
    while waiting:
        failed = {}
        for number, rule in waiting.items():
            try:
                known = known.loaded([rule])
            except MnemonError as error:
                failed[number] = error
        if len(failed) == len(waiting):
            break
        waiting = {number: rules[number] for number in failed}
    return known, failed


TOGETHER_MAX = 250
"""Records of one transaction, during which nothing else is written."""
EMBEDDED_MAX, EMBEDDED_CHARACTERS_MAX = 64, 1 << 20
"""Records whose texts go to the model together, and how long those may be together, unless it is only one."""

ImportItem = ArchivedRecord | MnemonError
"""A record, or why it could not be read."""


Ready = Incoming | IncomingRule | EventWrite
Checked = Ready | MnemonError


class Import:
    """One import. Messages are taken one after the other."""

    def __init__(
        self,
        vault: Vault,
        start: ImportStart,
        *,
        embedder: EmbeddingBatcher,
        rules: RuleStore,
        capacity: Capacity | None,
        offload: Offload,
        clock: Clock,
    ) -> None:
        """Writes nothing yet. The terms were checked. Without a capacity, statements are not counted."""
        self._vault = vault
        self._start = start
        self._embedder = embedder
        self._dimension = embedder.model.dimension
        self._rules = rules
        self._capacity = capacity
        self._offload = offload
        self._clock = clock

    async def take(self, items: Sequence[ImportItem]) -> list[ImportResult]:
        """Stores the records of one message, and returns one result each; a bad one fails alone.

        Raises:
            StorageFullError, StorageFailedError: see RecordEngine; what was stored before stays.
            EmbeddingError, TooManyRequestsError: texts cannot be embedded.
            IndexWarmingError: see Timeline.
        """
        checked = await self._embedded(await self._offload(self._checked, items))
        results: dict[int, ImportResult] = {n: each for n, each in enumerate(checked) if isinstance(each, MnemonError)}
        stores: Sequence[tuple[type[Ready], int, Callable[[list[Any]], Awaitable[list[ImportResult]]]]] = (
            (Incoming, TOGETHER_MAX, self._store),
            (IncomingRule, RECORDS_MAX, self._store_rules),
            (EventWrite, TOGETHER_MAX, self._store_events),
        )
        for kind, most, store_some in stores:
            numbers = [n for n, each in enumerate(checked) if isinstance(each, kind)]
            for start in range(0, len(numbers), most):
                some = numbers[start : start + most]
                results |= zip(some, await store_some([checked[n] for n in some]), strict=True)
        return [results[n] for n in range(len(items))]

    # Checking

    def _checked(self, items: Sequence[ImportItem]) -> list[Checked]:
        return [each if isinstance(each, MnemonError) else self._check(each) for each in items]

    def _check(self, given: ArchivedRecord) -> Checked:
        try:
            if given.kind is RecordKind.EVENT:
                return self._event(given.event)
            document = given.document or Document("", "")
            stamps = _stamps(document)
            if given.kind is RecordKind.RULE:
                return checked_rule_record(document, stamps)
            checked = checked_document(given.kind, self._with_times(document))
            passages = self._passages(given.kind, checked, document)
            if given.kind is RecordKind.FACT and passages is None:
                checked = without_given_vector(checked)
            return Incoming(given.kind, checked, passages, stamps)
        except MnemonError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one record must not take the others along
            failure = IndexingError("the record could not be read")
            failure.__cause__ = error
            return failure

    def _with_times(self, document: Document) -> Document:
        """The document; if it does not say when it was stored, with the time of now."""
        if document.create_time is not None:
            return document
        return replace(document, create_time=self._clock(), update_time=self._clock())

    def _passages(self, kind: RecordKind, checked: Document, given: Document) -> Sequence[PassageInput] | None:
        """The passages that came with a record; None if they are to be made."""
        # If the content was changed by the check, the passages do not fit it.
        if given.passages and not self._start.embed_anew and checked.content == given.content:
            header = self._start.header
            if header is None or header.model is None:
                raise InvalidArgumentError.of(
                    f"{RECORD}.passages", "must be empty if no header names their model; or set embed_anew"
                )
            return given_passages(kind, checked, given, self._dimension)
        return None if kind in EMBEDDED and checked.content.strip() else ()

    def _event(self, event: Event | None) -> EventWrite:
        if event is None:
            raise InvalidArgumentError.of(f"{RECORD}.event", "must be set")
        if not event.event_id:
            raise InvalidArgumentError.of(f"{RECORD}.event.event_id", "must not be empty")
        refuse(event_violations(event, f"{RECORD}.event"))
        recorded = event.record_time if event.record_time != EPOCH else self._clock()
        kept = replace(event, event_time=to_utc(event.event_time), record_time=recorded)
        return EventWrite(kept, id_is_new=False, is_imported=not self._start.bridge_events)

    # Vectors

    async def _embedded(self, checked: Sequence[Checked]) -> list[Checked]:
        """The records, with passages for those that lack them."""
        found = list(checked)
        for kind in EMBEDDED:
            wanted = [n for n, each in enumerate(checked) if _lacks_passages(each, kind)]
            for numbers in _embedded_runs(checked, wanted):
                records = [each for n in numbers if isinstance(each := checked[n], Incoming)]
                heads = self._vault.collection(COLLECTION_OF[kind]).heads
                made = await embedded_passages(self._embedder, kind, [each.document for each in records], heads)
                for n, each, passages in zip(numbers, records, made, strict=True):
                    found[n] = replace(each, passages=passages)
        return found

    # Writing

    async def _store(self, incoming: Sequence[Incoming]) -> list[ImportResult]:
        policy = self._start.on_conflict
        return await transacted(self._vault, lambda tx: store(tx, incoming, policy, self._capacity))

    async def _store_rules(self, rules: Sequence[IncomingRule]) -> list[ImportResult]:
        policy = self._start.on_conflict
        version = self._start.header.rules_version if self._start.header else 0
        return await transacted(self._vault, lambda tx: store_rules(tx, self._rules, rules, policy, version))

    async def _store_events(self, writes: Sequence[EventWrite]) -> list[ImportResult]:
        events = [write.event for write in writes]
        erased = await transacted(self._vault, lambda tx: erased_events(tx, events))
        writes = [write for write, gone in zip(writes, erased, strict=True) if not gone]
        ids = [write.event.event_id for write in writes]
        known = await self._offload(self._vault.events.get, ids)
        stored = [None if each is None else decode(each.body) for each in known]
        receipts = await completion(self._vault.events.append(writes))
        recorded = iter([self._recorded(*each) for each in zip(writes, stored, receipts, strict=True)])
        return [ImportOutcome.ERASED if gone else next(recorded) for gone in erased]

    def _recorded(self, write: EventWrite, stored: Event | None, receipt: EventReceipt | MnemonError) -> ImportResult:
        if isinstance(receipt, EventReceipt):
            if not receipt.duplicate:
                return ImportOutcome.CREATED
            if stored is None or stored == write.event:
                # The same event may have been recorded under another id.
                return ImportOutcome.UNCHANGED
        elif not isinstance(receipt, EventExistsError):
            return receipt
        if self._start.on_conflict is ImportConflict.REFUSE:
            event_id = write.event.event_id
            return InvalidOperationError(f"another event has the id {event_id!r}; events are never replaced")
        return ImportOutcome.KEPT


def _stamps(document: Document) -> RecordStamps | None:
    if document.create_time is None or document.update_time is None:
        return None
    return RecordStamps(document.create_time, document.update_time, document.revision)


def _lacks_passages(each: Checked, kind: RecordKind) -> bool:
    return isinstance(each, Incoming) and each.kind is kind and each.passages is None


def _embedded_runs(checked: Sequence[Checked], numbers: Iterable[int]) -> Iterator[list[int]]:
    """The numbers of the records whose texts are embedded together, run by run."""
    run: list[int] = []
    length = 0
    for number in numbers:
        each = checked[number]
        more = len(each.document.content) if isinstance(each, Incoming) else 0
        if run and (len(run) == EMBEDDED_MAX or length + more > EMBEDDED_CHARACTERS_MAX):
            yield run
            run, length = [], 0
        run.append(number)
        length += more
    if run:
        yield run
