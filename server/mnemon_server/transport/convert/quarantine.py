"""Sources as values, and answers about quarantines as messages."""

from collections.abc import Mapping

from mnemon.v1 import quarantine_pb2 as pb

from mnemon_server.domain.access.quarantine import Quarantine, QuarantineReceipt
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import Provenance
from mnemon_server.transport.convert.archive import KINDS_TO_PB
from mnemon_server.wire.values import fill_time


def source_of(request: pb.QuarantineOriginRequest | pb.ReleaseOriginRequest) -> Provenance:
    """The source that a request names."""
    return Provenance(request.origin, request.origin_name)


def quarantined_to_pb(receipt: QuarantineReceipt) -> pb.QuarantineOriginResponse:
    """The answer to a quarantine."""
    return pb.QuarantineOriginResponse(
        quarantine=_optional(receipt), existed=receipt.existed, counts=_counts(receipt.counts)
    )


def released_to_pb(receipt: QuarantineReceipt) -> pb.ReleaseOriginResponse:
    """The answer to a release."""
    return pb.ReleaseOriginResponse(
        quarantine=_optional(receipt), existed=receipt.existed, counts=_counts(receipt.counts)
    )


def quarantine_to_pb(quarantine: Quarantine) -> pb.Quarantine:
    """A quarantine."""
    origin, name = quarantine.source
    message = pb.Quarantine(origin=origin, origin_name=name, reason=quarantine.reason)
    fill_time(message.create_time, quarantine.create_time)
    return message


def _optional(receipt: QuarantineReceipt) -> pb.Quarantine | None:
    return quarantine_to_pb(receipt.quarantine) if receipt.quarantine else None


def _counts(counts: Mapping[RecordKind, int]) -> list[pb.RecordCount]:
    return [pb.RecordCount(kind=KINDS_TO_PB[kind], count=count) for kind, count in counts.items() if count]
