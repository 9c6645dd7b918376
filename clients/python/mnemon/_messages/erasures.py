"""Converts requests and answers of the erase service."""

from collections.abc import Iterable

from mnemon._enums import choice, members_by_number
from mnemon._errors import InvalidArgumentError
from mnemon._messages.documents import scope_to_pb, text, time_from_pb
from mnemon._messages.facts import namespace_to_pb
from mnemon._messages.memories import filter_to_pb
from mnemon._messages.semantic_requests import request_id_to_pb
from mnemon._values import documents, erasures, filters
from mnemon._values.archive import RecordKind
from mnemon.v1 import archive_pb2, facts_pb2
from mnemon.v1 import erase_pb2 as pb

_PHASES = members_by_number(erasures.ErasePhase, pb.ErasePhase.DESCRIPTOR)


def erase_to_pb(
    user: str,
    namespace: Iterable[str],
    kind: str,
    scope: documents.Scope | None,
    where: filters.Filter | None,
    request_id: str | None = None,
    *,
    revoke_keys: bool = False,
    dry_run: bool = False,
) -> pb.EraseRequest:
    """The request; refuses none and more than one of user, namespace and kind."""
    labels = namespace_to_pb(namespace)
    if [bool(user), bool(labels), bool(kind)].count(True) != 1:
        raise InvalidArgumentError.of("target", "must be one of user, namespace and kind: say what to erase")
    if not kind and (scope is not None or where is not None):
        raise InvalidArgumentError.of("kind", "is required with scope and where: erase one kind of record at a time")
    named = "" if dry_run else request_id_to_pb(request_id)
    request = pb.EraseRequest(dry_run=dry_run, request_id=named, revoke_keys=revoke_keys)
    if user:
        request.user = text("user", user)
    elif labels:
        request.namespace.CopyFrom(facts_pb2.FactNamespace(labels=labels))
    else:
        name = f"RECORD_KIND_{choice('kind', kind, RecordKind).name}"
        request.filter.kind = archive_pb2.RecordKind.Value(name)
        if scope is not None:
            request.filter.scope.MergeFrom(scope_to_pb(scope))  # type: ignore[arg-type] # it is set
        if where is not None:
            request.filter.filter.CopyFrom(filter_to_pb(where))
    return request


def progress_from_pb(message: pb.EraseProgress) -> erasures.EraseProgress:
    """How far it is."""
    phase = _PHASES.get(message.phase, erasures.ErasePhase.UNKNOWN)
    return erasures.EraseProgress(phase, message.done, message.total, message.problem)


def receipt_from_pb(message: pb.ErasureReceipt) -> erasures.ErasureReceipt:
    """A receipt."""
    return erasures.ErasureReceipt(
        text=message.text,
        signature=message.signature,
        public_key=message.public_key,
        begin_time=time_from_pb(message, "begin_time"),
        counts=counts_from_pb(message.counts),
        tombstone_count=message.tombstone_count,
        out_of_reach=tuple(message.out_of_reach),
        found_files=tuple(message.found_files),
        found_neighbours=message.found_neighbours,
        replayed=message.replayed,
    )


def counts_from_pb(counts: Iterable[pb.EraseCount]) -> dict[str, int]:
    """Counts by store."""
    return {each.store: each.count for each in counts}
