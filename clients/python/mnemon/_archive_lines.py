"""Converts the lines of an archive, as JSON holds them, to protobuf messages, and back.

Values keep their types: 5 is a whole number and 5.0 is not, a time is {"time": "2026-01-31T12:00:00Z"}. A vector is the
base64 of its numbers as little-endian 32-bit floats.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import timestamp_pb2
from google.protobuf.message import Message

from mnemon._enums import choice, members_by_number, numbers_by_member
from mnemon._messages import convert
from mnemon._messages.convert import invalid, namespace_to_pb
from mnemon._values.archive import FORMAT_VERSION, ArchiveLine, RecordKind
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.timeline import TEXTS as EVENT_TEXTS
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import common_pb2, episodic_pb2

MARK = "mnemon_archive"
"""The key of a header that holds the version of the format."""
SUMMARY = "summary"

_KINDS = {number: kind.value for number, kind in members_by_number(RecordKind, pb.RecordKind.DESCRIPTOR).items()}
_KINDS_TO_PB = numbers_by_member(RecordKind, pb.RecordKind.DESCRIPTOR)
_MODEL = ("name", "revision", "precision", "dimension")
_TIMES = ("create_time", "update_time")
_EVENT_TEXTS = tuple(name for name in EVENT_TEXTS if name != "event_id")
_EVENT_TIMES = ("event_time", "record_time")
_RECORD = {"kind", "id", "content", "metadata", "scope", "fields", "hidden", "revision", "passages", "event", *_TIMES}
_EVENT = {"scope", "importance", "metadata", *_EVENT_TEXTS, *_EVENT_TIMES}
_PASSAGE = {"start", "end", "vector"}


# From messages to lines


def lines_of(response: pb.ExportRecordsResponse) -> Iterator[dict[str, Any]]:
    """The lines of one message of an export."""
    match response.WhichOneof("payload"):
        case "header":
            yield _header_line(response.header)
        case "records":
            yield from map(_record_line, response.records.records)
        case "summary":
            summary = response.summary
            counts = {"changed_count": summary.changed_count, "removed_count": summary.removed_count}
            yield {SUMMARY: {"counts": _counts(summary.counts), **counts}}


def _header_line(header: pb.ArchiveHeader) -> dict[str, Any]:
    line: dict[str, Any] = {MARK: header.format_version}
    if header.HasField("embedding_model"):
        line["embedding_model"] = {name: getattr(header.embedding_model, name) for name in _MODEL}
    if selection := _selection(header.selection):
        line["selection"] = selection
    line |= {"export_time": header.export_time.ToJsonString(), "cursor": header.cursor}
    return line | {"counts": _counts(header.counts), "rules_version": header.rules_version}


def _selection(selection: pb.ExportSelection) -> dict[str, Any]:
    said: dict[str, Any] = {
        "kinds": [_KINDS.get(number, str(number)) for number in selection.kinds],
        "namespace": list(selection.namespace.labels),
        "exact_namespace": selection.exact_namespace,
        "scope": _scope(selection.scope),
    }
    return _said(said)


def _record_line(record: pb.ArchivedRecord) -> dict[str, Any]:
    line: dict[str, Any] = {"kind": _KINDS.get(record.kind, str(record.kind)), "id": record.id}
    if record.HasField("event"):
        return line | {"event": _event(record.event)}
    said: dict[str, Any] = {
        "content": record.content,
        "metadata": _values(record.metadata),
        "scope": _scope(record.scope),
        "fields": _values(record.fields),
        "hidden": record.hidden,
        **_times(record, _TIMES),
        "revision": record.revision,
        "passages": [_passage(each) for each in record.passages],
    }
    return line | _said(said)


def _passage(passage: pb.ArchivedPassage) -> dict[str, Any]:
    return {"start": passage.start, "end": passage.end, "vector": base64.b64encode(passage.vector).decode()}


def _event(event: episodic_pb2.EpisodicEvent) -> dict[str, Any]:
    said: dict[str, Any] = {name: getattr(event, name) for name in _EVENT_TEXTS}
    said |= {**_times(event, _EVENT_TIMES), "scope": _scope(event.scope), "metadata": _values(event.metadata)}
    # An importance of 0 is a value.
    return _said(said) | ({"importance": event.importance} if event.HasField("importance") else {})


def _times(message: Message, names: Iterable[str]) -> dict[str, str]:
    return {name: getattr(message, name).ToJsonString() for name in names if message.HasField(name)}


def _values(values: Mapping[str, common_pb2.MetadataValue]) -> dict[str, Any]:
    # A message has no order, but two exports of the same data should be equal.
    return {key: _value(value) for key, value in sorted(values.items())}


def _value(value: common_pb2.MetadataValue) -> Any:
    kind = value.WhichOneof("kind")
    match kind:
        case None:
            return None
        case "timestamp_value":
            return {"time": value.timestamp_value.ToJsonString()}
        case "string_list_value":
            return list(value.string_list_value.values)
    return getattr(value, kind)


def _scope(scope: common_pb2.Scope) -> dict[str, str]:
    return _said({name: getattr(scope, name) for name in SCOPE_FIELDS})


def _counts(counts: Any) -> dict[str, int]:
    return {_KINDS.get(each.kind, str(each.kind)): each.count for each in counts}


def _said(values: dict[str, Any]) -> dict[str, Any]:
    """Omits empty values."""
    return {name: value for name, value in values.items() if value}


# From lines to messages


def is_header(line: object) -> bool:
    """Whether a line is the header of an archive."""
    return isinstance(line, Mapping) and MARK in line


def is_summary(line: object) -> bool:
    """Whether a line is the summary that ends an archive."""
    return isinstance(line, Mapping) and SUMMARY in line and "kind" not in line


def header_to_pb(line: ArchiveLine) -> pb.ArchiveHeader:
    """The header as an import needs it. Raises InvalidArgumentError if it is damaged or its format is unknown."""
    version, model = line[MARK], line.get("embedding_model")
    if version != FORMAT_VERSION:
        raise invalid(MARK, f"must be {FORMAT_VERSION}, the version that this client knows, not {version!r}")
    header = pb.ArchiveHeader(format_version=version, rules_version=_whole("rules_version", line.get("rules_version")))
    if model is not None:
        given = _object("embedding_model", model, set(_MODEL))
        texts = {name: convert.text(f"embedding_model.{name}", given.get(name, "")) for name in _MODEL[:-1]}
        dimension = _whole("embedding_model.dimension", given.get("dimension"))
        header.embedding_model.CopyFrom(common_pb2.EmbeddingModel(**texts, dimension=dimension))
    return header


def record_to_pb(line: object) -> pb.ArchivedRecord:
    """The record of a line. Raises InvalidArgumentError, with the field, if it is not a record."""
    given = _object("record", line, _RECORD)
    kind = choice("record.kind", given.get("kind", ""), RecordKind)
    record = pb.ArchivedRecord(
        kind=_KINDS_TO_PB[kind],
        id=_text(given, "record", "id"),
        content=_text(given, "record", "content"),
        metadata=_values_to_pb("record.metadata", given.get("metadata")),
        fields=_values_to_pb("record.fields", given.get("fields")),
        hidden=given.get("hidden") is True,
        revision=_whole("record.revision", given.get("revision")),
        passages=[_passage_to_pb(f"record.passages[{i}]", each) for i, each in enumerate(_list(given, "passages"))],
    )
    if "scope" in given:
        record.scope.CopyFrom(_scope_to_pb("record.scope", given["scope"]))
    for name in _TIMES:
        if name in given:
            _fill_time(getattr(record, name), f"record.{name}", given[name])
    if "event" in given:
        _fill_event(record.event, given["event"])
        record.event.event_id = record.id
    return record


def id_of(line: object, name: str) -> str:
    """The kind or the id of a line, for messages; empty if it is missing."""
    found = line.get(name) if isinstance(line, Mapping) else None
    return found if isinstance(found, str) else ""


def kind_of(record: pb.ArchivedRecord) -> str:
    """The name of a record's kind."""
    return _KINDS.get(record.kind, "")


def selection_to_pb(kinds: Any, namespace: Any, scope: Any, *, exact_namespace: bool) -> pb.ExportSelection:
    """The selection of an export, as a message."""
    names = [kinds] if isinstance(kinds, str) else kinds
    selection = pb.ExportSelection(
        kinds=[_KINDS_TO_PB[choice("kinds", kind, RecordKind)] for kind in names],
        exact_namespace=exact_namespace,
    )
    if namespace:
        selection.namespace.labels.extend(namespace_to_pb("namespace", namespace))
    if scope is not None:
        selection.scope.CopyFrom(_scope_to_pb("scope", scope.to_dict()))
    return selection


def _fill_event(event: episodic_pb2.EpisodicEvent, line: object) -> None:
    place = "record.event"
    given = _object(place, line, _EVENT)
    for name in _EVENT_TEXTS:
        setattr(event, name, _text(given, place, name))
    for name in _EVENT_TIMES:
        if name in given:
            _fill_time(getattr(event, name), f"{place}.{name}", given[name])
    if "scope" in given:
        event.scope.CopyFrom(_scope_to_pb(f"{place}.scope", given["scope"]))
    if given.get("importance") is not None:
        event.importance = _number(f"{place}.importance", given["importance"])
    for key, value in _values_to_pb(f"{place}.metadata", given.get("metadata")).items():
        event.metadata[key].CopyFrom(value)


def _passage_to_pb(place: str, line: object) -> pb.ArchivedPassage:
    given = _object(place, line, _PASSAGE)
    try:
        vector = base64.b64decode(convert.text(f"{place}.vector", given.get("vector", "")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{place}.vector", "must be the base64 of little-endian 32-bit floats") from error
    start, end = (_whole(f"{place}.{name}", given.get(name)) for name in ("start", "end"))
    if max(start, end) >= 2**31:
        raise invalid(place, "must be a part of the content")
    return pb.ArchivedPassage(start=start, end=end, vector=vector)


def _values_to_pb(place: str, given: object) -> dict[str, common_pb2.MetadataValue]:
    values = {} if given is None else _object(place, given, None)
    return {convert.text(f"{place} key", key): _value_to_pb(f"{place}.{key}", value) for key, value in values.items()}


def _value_to_pb(place: str, given: object) -> common_pb2.MetadataValue:
    if isinstance(given, Mapping):
        value = common_pb2.MetadataValue()
        _fill_time(value.timestamp_value, place, _object(place, given, {"time"}).get("time"))
        return value
    return convert.value_to_pb(place, given)


def _scope_to_pb(place: str, given: object) -> common_pb2.Scope:
    texts = _object(place, given, set(SCOPE_FIELDS))
    return common_pb2.Scope(**{name: _text(texts, place, name) for name in texts})


def _fill_time(target: timestamp_pb2.Timestamp, place: str, given: object) -> None:
    try:
        target.FromJsonString(convert.text(place, given))
    except ValueError as error:
        raise invalid(place, 'must be a time with a zone, such as "2026-01-31T12:00:00Z"') from error


def _object(place: str, given: object, known: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise invalid(place, f"must be an object, not {type(given).__name__}")
    if known is not None and (unknown := [key for key in given if key not in known]):
        raise invalid(f"{place}.{str(unknown[0])[:80]}", f"is not known; {', '.join(sorted(known))} are")
    return given


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    found = given.get(name, [])
    if not isinstance(found, list):
        raise invalid(f"record.{name}", f"must be a list, not {type(found).__name__}")
    return found


def _text(given: Mapping[str, Any], place: str, name: str) -> str:
    return convert.text(f"{place}.{name}", given.get(name, ""))


def _whole(place: str, given: object) -> int:
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 2**63:
        raise invalid(place, "must be a whole number of 0 or more")
    return given


def _number(place: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise invalid(place, "must be a number")
    return float(given)
