"""Requests to erase as values (see `Reader` for what is raised), and the messages of an erasure."""

from collections.abc import Mapping
from datetime import datetime

from mnemon.v1 import erase_pb2 as pb

from mnemon_server.domain.erasure import (
    EraseCounts,
    EraseFilter,
    EraseMessage,
    EraseProgress,
    EraseTarget,
    ErasureReceipt,
    ErasureRequest,
)
from mnemon_server.domain.origins import Provenance
from mnemon_server.domain.validation import scope_violations
from mnemon_server.transport.convert.archive import KINDS
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader, read_filter
from mnemon_server.wire.values import scope_of


def read_erase(request: pb.EraseRequest) -> ErasureRequest:
    """The request for an erasure."""
    reader = Reader()
    asked = ErasureRequest(_target(reader, request), request.dry_run, request.request_id, request.revoke_keys)
    # Without a kind, the service cannot check the filter.
    where = asked.target.where
    reader.finish(scope_violations(where.scope, "filter.scope") if where else ())
    return asked


def _target(reader: Reader, request: pb.EraseRequest) -> EraseTarget:
    match request.WhichOneof("target"):
        case "user":
            return EraseTarget(user=request.user)
        case "namespace":
            return EraseTarget(namespace=read_namespace(reader, "namespace.labels", request.namespace.labels))
        case "origin":
            return EraseTarget(source=Provenance(request.origin.origin, request.origin.name))
        case "filter":
            message = request.filter
            kind = reader.enum("filter.kind", message.kind, KINDS)
            has_filter = message.HasField("filter")
            expression = read_filter(reader, "filter.filter", message.filter) if has_filter else None
            return EraseTarget(where=EraseFilter(kind, scope_of(message), expression))
        case _:
            return EraseTarget()


def message_to_pb(message: EraseMessage) -> pb.EraseResponse:
    """One message of the stream."""
    match message:
        case EraseProgress(phase, done, total, problem):
            value = pb.ErasePhase.Value(f"ERASE_PHASE_{phase.name}")
            progress = pb.EraseProgress(phase=value, done=done, total=total, problem=problem)
            return pb.EraseResponse(progress=progress)
        case EraseCounts(counts):
            return pb.EraseResponse(dry_run=pb.EraseDryRun(counts=_counts(counts)))
        case _:
            return pb.EraseResponse(receipt=receipt_to_pb(message))


def receipt_to_pb(receipt: ErasureReceipt) -> pb.ErasureReceipt:
    """A receipt, with what its text says as fields."""
    said = receipt.said
    made = pb.ErasureReceipt(
        text=receipt.text,
        signature=receipt.signature,
        public_key=receipt.public_key,
        counts=_counts(said["counts"]),
        tombstone_count=said["tombstones"],
        out_of_reach=said["out_of_reach"],
        found_files=said["scan"]["found"],
        found_neighbours=said["neighbours_found"],
        replayed=receipt.replayed,
    )
    made.begin_time.FromDatetime(datetime.fromisoformat(said["begin_time"]))
    return made


def _counts(counts: Mapping[str, int]) -> list[pb.EraseCount]:
    return [pb.EraseCount(store=store, count=count) for store, count in sorted(counts.items())]
