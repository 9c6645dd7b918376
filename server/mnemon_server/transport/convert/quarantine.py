"""Sources as values, and answers about quarantines as messages."""

from typing import TypeVar

from mnemon.v1 import quarantine_pb2 as pb

from mnemon_server.domain.access.quarantine import Quarantine, QuarantineReceipt
from mnemon_server.domain.origins import Provenance
from mnemon_server.transport.convert.archive import KINDS_TO_PB
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.wire.values import fill_time

Answer = TypeVar("Answer", pb.QuarantineOriginResponse, pb.ReleaseOriginResponse)


def source_of(request: pb.QuarantineOriginRequest | pb.ReleaseOriginRequest) -> Provenance:
    """The source that a request names."""
    return Provenance(request.origin, request.origin_name)


def with_receipt(message: Answer, receipt: QuarantineReceipt) -> Answer:
    """The answer to a quarantine or a release."""
    quarantine = quarantine_to_pb(receipt.quarantine) if receipt.quarantine else None
    counts = [pb.RecordCount(kind=KINDS_TO_PB[kind], count=count) for kind, count in receipt.counts.items() if count]
    return filled(message, receipt, quarantine=quarantine, counts=counts)


def quarantine_to_pb(quarantine: Quarantine) -> pb.Quarantine:
    """A quarantine."""
    origin, name = quarantine.source
    message = pb.Quarantine(origin=origin, origin_name=name, reason=quarantine.reason)
    fill_time(message.create_time, quarantine.create_time)
    return message
