"""Converts protobuf messages to information about a server."""

from mnemon._enums import members_by_number
from mnemon._messages.documents import model_from_pb
from mnemon._values import server
from mnemon.v1 import server_pb2 as pb

_CAPABILITIES = members_by_number(server.Capability, pb.DESCRIPTOR.enum_types_by_name["Capability"])


def info_from_pb(response: pb.GetServerInfoResponse) -> server.ServerInfo:
    """Information about a server, without capabilities that this client does not know."""
    return server.ServerInfo(
        version=response.version,
        api_revision=response.api_revision,
        capabilities=tuple(_CAPABILITIES[each] for each in response.capabilities if each in _CAPABILITIES),
        limits=_limits_from_pb(response.limits),
        embedding_model=model_from_pb(response.embedding_model),
        vault_id=response.vault_id,
    )


def _limits_from_pb(limits: pb.ServerLimits) -> server.ServerLimits:
    return server.ServerLimits(
        message_bytes=limits.message_bytes,
        answer_bytes=limits.answer_bytes,
        content_bytes=limits.content_bytes,
        bulk_requests=limits.bulk_requests,
        page_size=limits.page_size,
        unary_calls=limits.unary_calls,
        streams=limits.streams,
        default_deadline_s=limits.default_deadline.ToTimedelta().total_seconds(),
        change_retention_s=limits.change_retention.ToTimedelta().total_seconds(),
        embedding_tokens=limits.embedding_tokens,
    )
