"""Checks of archived records: each kind is read as its service reads it, and rebuilt.

So a field that follows from others is right, wherever the archive came from, and no service gets a record that it
cannot read.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from mnemon_server.domain.access.grants import grant_violations
from mnemon_server.domain.archive import FIGURE_MAX, FIGURE_RANGE
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import Collection, FieldType
from mnemon_server.domain.confidence import DEFAULT_DECAY, ConfidenceModel
from mnemon_server.domain.conflicts import Decision
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError, RecordDamagedError
from mnemon_server.domain.facts import Fact, FactIndex, FactVersion, PutFact, key_violations, value_violations
from mnemon_server.domain.history import stored_version, version_document
from mnemon_server.domain.kinds import COLLECTION_OF, VERSIONED, RecordKind
from mnemon_server.domain.memories import DecayPolicy
from mnemon_server.domain.namespaces import decode_labels
from mnemon_server.domain.origins import origin_violations, with_origin
from mnemon_server.domain.records import COUNT_MAX, DURATION_MAX, INT64_MAX, Scope
from mnemon_server.domain.validation import doc_id_violations, document_violations, normalised, refuse, text_violations
from mnemon_server.services.facts import stored_form as facts_documents
from mnemon_server.services.facts.checks import TTL_MAX, put_violations
from mnemon_server.services.facts.stored_form import VERSIONS_BYTES_MAX, VERSIONS_MAX
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.grants.stored_form import to_document as grant_document
from mnemon_server.services.grants.stored_form import to_grant
from mnemon_server.services.memories import stored_form as memory_documents
from mnemon_server.services.memories.checks import memory_violations
from mnemon_server.services.semantic import stored_form as semantic_documents
from mnemon_server.services.semantic.checks import statement_violations
from mnemon_server.services.semantic.decisions import (
    MICROSECOND,
    decision_document,
    decision_from_json,
    decision_to_json,
)

# Whether values that were read from JSON have the types that a dataclass names, and fit into a message.


def is_of_type(value: object, wanted: Any) -> bool:
    """Whether a value has a type: a class, a union, a tuple of any length, or a dataclass of such, field by field.

    A whole number is also a number; a boolean is neither. Numbers must be finite.
    """
    origin = get_origin(wanted)
    if origin in (Union, UnionType):
        return any(is_of_type(value, each) for each in get_args(wanted))
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of_type(item, get_args(wanted)[0]) for item in value)
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        # Not `isfinite`, which fails for a whole number beyond the range of a float.
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    if wanted is None or wanted is NoneType:
        return value is None
    return isinstance(value, wanted) and all(
        is_of_type(getattr(value, name), hint) for name, hint in _hints(wanted).items()
    )


def figure_violations(value: Any, place: str) -> Iterator[FieldViolation]:
    """The counts and lengths of time in a value of the right type that do not fit into a message."""
    if isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from figure_violations(item, f"{place}[{number}]")
    elif isinstance(value, timedelta):
        if not timedelta(0) <= value <= DURATION_MAX:
            yield FieldViolation(place, f"must be 0 to {DURATION_MAX.total_seconds():,.0f} seconds")
    else:
        kind: type = type(value)
        for name, hint in _hints(kind).items():
            item = getattr(value, name)
            if hint is int and not 0 <= item <= COUNT_MAX:
                yield FieldViolation(f"{place}.{name}", f"must be 0 to {COUNT_MAX:,}")
            yield from figure_violations(item, f"{place}.{name}")


@cache
def _hints(wanted: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields, by name; empty for any other class."""
    if not is_dataclass(wanted):
        return {}
    return get_type_hints(wanted)


RECORD = "record"
FIELD_BYTES_MAX = 4 << 20
EMBEDDING_BYTES_MAX = 128

_NAMES = {
    f"{RECORD}.doc_id": f"{RECORD}.id",
    "fact.value": f"{RECORD}.fields.fact_value",
    "fact.metadata": f"{RECORD}.fields.own_metadata",
    "fact.index": f"{RECORD}.fields.indexing",
    f"{RECORD}.subject": f"{RECORD}.fields.subject",
}
"""Names of fields in error messages of the services, and what those are called in an archive."""
_CONFIDENCE = ConfidenceModel(DEFAULT_DECAY)
_EMPTY: Mapping[FieldType, FieldValue] = {FieldType.TEXT: "", FieldType.TEXTS: ()}


def checked_document(kind: RecordKind, given: Document) -> Document:
    """The document that a record stands for, of any kind except RULE and EVENT; passages and stamps are not checked.

    Raises:
        InvalidArgumentError: it is not such a record; names what is wrong.
    """
    refuse(doc_id_violations(given.doc_id, f"{RECORD}.id"))
    refuse(stamp_violations(given))
    refuse(origin_violations(given.scope, f"{RECORD}.scope"))
    collection = COLLECTION_OF[kind]
    refuse(_field_violations(given.fields, collection))
    complete = {each.name: given.fields.get(each.name, _EMPTY.get(each.type)) for each in collection.fields}
    return _READERS[kind](replace(normalised(given), fields=complete))


def without_given_vector(fact: Document) -> Document:
    """A fact whose texts are embedded, though it came with its own vector."""
    said = json.loads(str(fact.fields["indexing"]))
    said.pop("embedding", None)
    return replace(fact, fields={**fact.fields, "indexing": json.dumps(said, separators=(",", ":"), sort_keys=True)})


def _document(given: Document) -> Document:
    refuse(_renamed(document_violations(given, RECORD)))
    if given.hidden:
        raise InvalidArgumentError.of(f"{RECORD}.hidden", "must not be set: documents are never hidden")
    return given


def _memory(given: Document) -> Document:
    if given.fields["decay_policy"] not in {"", *DecayPolicy}:
        known = ", ".join(DecayPolicy)
        raise InvalidArgumentError.of(f"{RECORD}.fields.decay_policy", f"must be one of {known}")
    memory = memory_documents.to_memory(given, _CONFIDENCE, EPOCH)
    refuse(memory_violations(memory, RECORD))
    return memory_documents.to_document(memory)


def _statement(given: Document) -> Document:
    statement = semantic_documents.to_semantic(given)
    refuse(statement_violations(statement, RECORD))
    return semantic_documents.to_document(statement)


def _decision(given: Document) -> Document:
    problem = InvalidArgumentError.of(f"{RECORD}.content", "must be the JSON of a decision")
    try:
        decision = decision_from_json(given.content)
    except UNREADABLE as error:
        raise problem from error
    if not is_of_type(decision, Decision):
        raise problem
    refuse(figure_violations(decision, f"{RECORD}.content"))
    refuse(origin_violations(decision.scope, f"{RECORD}.content.scope"))
    if decision.decision_id != given.doc_id:
        raise InvalidArgumentError.of(f"{RECORD}.id", "must be the decision's id")
    return decision_document(decision, decision_to_json(decision))


def _fact(given: Document) -> Document:
    refuse(_ttl_violations(given.fields["ttl_s"]))
    try:
        fact = facts_documents.to_fact(given, versions=True)
        embedding = str(json.loads(str(given.fields["indexing"])).get("embedding", ""))
    except (*UNREADABLE, RecordDamagedError) as error:
        said = str(error.__cause__ or error)[:200]
        raise InvalidArgumentError.of(f"{RECORD}.fields", f"must be valid for a fact: {said}") from error
    # A fact belongs to its namespace, and to no user.
    fact = replace(fact, source=with_origin(Scope(), fact.source))
    refuse(_fact_violations(fact, embedding))
    refuse(_version_violations(fact.versions, str(given.fields["versions"])))
    request = PutFact(
        namespace=fact.namespace, value=fact.value, metadata=fact.metadata, ttl=fact.ttl, index=fact.index
    )
    refuse([*key_violations(fact.key, f"{RECORD}.fields.fact_key"), *_renamed(put_violations(request, 0))])
    content = IndexedTexts.of(fact.value, fact.index).content
    document = facts_documents.to_document(fact, content, embedding=embedding)
    if document.doc_id != given.doc_id:
        raise InvalidArgumentError.of(f"{RECORD}.id", f"must be {document.doc_id!r}, the digest of namespace and key")
    return replace(document, fields={**document.fields, "versions": given.fields["versions"]})


def _fact_violations(fact: Fact, embedding: str) -> Iterator[FieldViolation]:
    """Violations in the fields of a fact, before it is checked as a fact."""
    yield from text_violations(embedding, f"{RECORD}.fields.indexing", EMBEDDING_BYTES_MAX)
    if not is_of_type(fact.index, FactIndex):
        yield FieldViolation(f"{RECORD}.fields.indexing", "must be JSON that says what is searched")


def _ttl_violations(ttl_s: FieldValue) -> Iterator[FieldViolation]:
    if isinstance(ttl_s, int | float) and not MICROSECOND.total_seconds() <= ttl_s <= TTL_MAX.total_seconds():
        limit = f"{TTL_MAX.total_seconds():,.0f} seconds"
        yield FieldViolation(f"{RECORD}.fields.ttl_s", f"must be at least a millionth and at most {limit}")


def _version_violations(versions: Sequence[FactVersion], text: str) -> Iterator[FieldViolation]:
    """Violations in the earlier versions of a fact, which are kept as the text in which they came."""
    place = f"{RECORD}.fields.versions"
    if len(versions) > VERSIONS_MAX or len(text.encode()) > VERSIONS_BYTES_MAX + VERSIONS_MAX:
        yield FieldViolation(place, f"must be at most {VERSIONS_MAX}, and {VERSIONS_BYTES_MAX:,} bytes together")
        return
    for each in versions:
        if not is_of_type(each.revision, int) or not 0 <= each.revision < INT64_MAX:
            yield FieldViolation(place, "must be earlier versions: one JSON list per line, the revision first")
        yield from value_violations(each.value, place)


def _grant(given: Document) -> Document:
    try:
        grant = to_grant(given)
    except RecordDamagedError as error:
        raise InvalidArgumentError.of(f"{RECORD}.fields.namespace", "must be an encoded namespace") from error
    refuse(_renamed(grant_violations(grant, f"{RECORD}.")))
    if grant.grant_id != given.doc_id:
        raise InvalidArgumentError.of(f"{RECORD}.id", f"must be {grant.grant_id!r}, the digest of subject and share")
    return grant_document(grant)


_STAMPS = ("create_time", "update_time", "revision")


def _version(given: Document) -> Document:
    """An earlier version: the record that it holds is checked as a record."""
    kind = str(given.fields["kind"])
    if kind not in VERSIONED:
        raise InvalidArgumentError.of(f"{RECORD}.fields.kind", f"must be one of {', '.join(sorted(VERSIONED))}")
    for name in ("created", "since", "until"):
        if given.fields[name] is None:
            raise InvalidArgumentError.of(f"{RECORD}.fields.{name}", "must be set")
    try:
        version = stored_version(given)
    except RecordDamagedError as error:
        said = str(error.__cause__ or error)[:200]
        raise InvalidArgumentError.of(f"{RECORD}.fields", f"must be valid for a version: {said}") from error
    if not 0 <= version.position <= FIGURE_MAX:
        raise InvalidArgumentError.of(f"{RECORD}.fields.record", f"position {FIGURE_RANGE}")
    given = replace(version.document, revision=min(version.document.revision, FIGURE_MAX))
    stamps = {name: getattr(given, name) for name in _STAMPS}
    return version_document(
        replace(version, document=replace(checked_document(RecordKind(kind), given), **stamps)), kind
    )


_READERS: Mapping[RecordKind, Callable[[Document], Document]] = {
    RecordKind.DOCUMENT: _document,
    RecordKind.MEMORY: _memory,
    RecordKind.FACT: _fact,
    RecordKind.SEMANTIC: _statement,
    RecordKind.DECISION: _decision,
    RecordKind.VERSION: _version,
    RecordKind.GRANT: _grant,
}


def stamp_violations(given: Document) -> Iterator[FieldViolation]:
    """Violations in the times and the revision of a record."""
    if (given.create_time is None) != (given.update_time is None):
        yield FieldViolation(f"{RECORD}.update_time", "must be set together with create_time")
    if not 0 <= given.revision <= FIGURE_MAX:
        yield FieldViolation(f"{RECORD}.revision", FIGURE_RANGE)


def _field_violations(fields: Mapping[str, object], collection: Collection) -> Iterator[FieldViolation]:
    known = {each.name: each.type for each in collection.fields}
    for name, value in fields.items():
        place = f"{RECORD}.fields.{name[:80]}"
        if name not in known:
            yield FieldViolation(place, f"is not a field of this kind; it has {', '.join(known) or 'none'}")
        elif value is not None:
            # The encoding of a namespace has U+0000 for a dot within a label; who reads the fact checks the labels.
            plain = ".".join(decode_labels(value)) if name == "namespace" and isinstance(value, str) else value
            yield from _value_violations(plain, known[name], place)


def _value_violations(value: Any, kind: FieldType, place: str) -> Iterator[FieldViolation]:
    match kind, value:
        case FieldType.TEXT, str():
            yield from text_violations(value, place, FIELD_BYTES_MAX)
        case FieldType.TEXTS, tuple():
            for number, text in enumerate(value):
                yield from text_violations(text, f"{place}[{number}]", FIELD_BYTES_MAX)
        case (FieldType.BOOLEAN, bool()) | (FieldType.TIME, datetime()):
            pass
        case FieldType.NUMBER, int() | float() if is_of_type(value, float):
            pass
        case _:
            yield FieldViolation(place, f"must be of the type {kind}")


def _renamed(violations: Iterable[FieldViolation]) -> Iterator[FieldViolation]:
    """The violations under the names that fields have in an archive."""
    for violation in violations:
        [found] = [(old, new) for old, new in _NAMES.items() if violation.field.startswith(old)] or [("", "")]
        yield replace(violation, field=violation.field.replace(*found, 1))
