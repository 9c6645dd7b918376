"""Checks of the archive service's requests: what is no value, and so cannot come before the service."""

from collections.abc import Iterator

from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import episodic_pb2

from mnemon_server.domain.archive import RECORDS_MAX
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.namespaces import namespace_violations
from mnemon_server.domain.validation import refuse
from mnemon_server.transport.convert.archive import CONFLICTS, KINDS, VECTOR_TYPE
from mnemon_server.transport.convert.shared.reading import time_violations, unknown, unset_values

_RECORD = "record"


def check_export(request: pb.ExportRecordsRequest) -> None:
    """Raises InvalidArgumentError where a selection says nothing that can be meant."""
    selection = request.selection
    found = [violation for number in selection.kinds for violation in unknown("selection.kinds", number, KINDS)]
    if selection.HasField("namespace"):
        found += namespace_violations(tuple(selection.namespace.labels), "selection.namespace")
    refuse(found)


def check_start(request: pb.ImportRecordsRequest) -> None:
    """Raises InvalidArgumentError where the first message of an import does not say how to import."""
    if not request.HasField("start"):
        raise InvalidArgumentError.of("start", "is required in the first message")
    refuse(unknown("start.on_conflict", request.start.on_conflict, CONFLICTS))


def check_records(request: pb.ImportRecordsRequest) -> None:
    """Raises InvalidArgumentError where a message holds too many records."""
    if len(request.records) > RECORDS_MAX:
        raise InvalidArgumentError.of("records", f"must be at most {RECORDS_MAX:,}; send several messages")


def check_record(message: pb.ArchivedRecord) -> None:
    """Raises InvalidArgumentError where a record has values that are none."""
    refuse(_record_violations(message))


def _record_violations(message: pb.ArchivedRecord) -> Iterator[FieldViolation]:
    yield from unknown(f"{_RECORD}.kind", message.kind, KINDS)
    yield from unset_values(f"{_RECORD}.metadata", message.metadata)
    yield from unset_values(f"{_RECORD}.fields", message.fields)
    for name in ("create_time", "update_time"):
        if message.HasField(name):
            yield from time_violations(f"{_RECORD}.{name}", getattr(message, name))
    for number, passage in enumerate(message.passages):
        if len(passage.vector) % VECTOR_TYPE.itemsize:
            description = f"must have {VECTOR_TYPE.itemsize} bytes for each number"
            yield FieldViolation(f"{_RECORD}.passages[{number}].vector", description)
    if message.HasField("event"):
        yield from _event_violations(message.event)


def _event_violations(event: episodic_pb2.EpisodicEvent) -> Iterator[FieldViolation]:
    yield from time_violations(f"{_RECORD}.event.event_time", event.event_time)
    if not event.HasField("event_time"):
        yield FieldViolation(f"{_RECORD}.event.event_time", "must be set")
    if event.HasField("record_time"):
        yield from time_violations(f"{_RECORD}.event.record_time", event.record_time)
    yield from unset_values(f"{_RECORD}.event.metadata", event.metadata)
