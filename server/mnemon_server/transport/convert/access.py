"""Requests to the access service as values, and its answers as messages."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from mnemon.v1 import access_pb2 as pb

from mnemon_server.domain.access import OVERLAP_DEFAULT, ApiKey, Principal, Role, key_violations
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.access.grants import Grant, grant_violations
from mnemon_server.domain.access.shares import Share
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.roles import ROLES
from mnemon_server.wire.values import scope_of

_ACCESS: Mapping[int, bool] = {
    pb.GRANT_ACCESS_UNSPECIFIED: False,
    pb.GRANT_ACCESS_READ: False,
    pb.GRANT_ACCESS_WRITE: True,
}
"""Whether each kind of access allows writing."""


class KeyCreation(NamedTuple):
    """A key to be made."""

    name: str
    role: Role
    ttl: timedelta | None
    """For how long it is valid; None for one that does not end by itself."""
    bounds: Bounds


def read_create(request: pb.CreateKeyRequest) -> KeyCreation:
    """The key to be made."""
    reader = Reader()
    role = reader.enum("role", request.role, ROLES)
    ttl = reader.duration("ttl", request, "ttl")
    reader.finish(key_violations(request.name, ttl))
    return KeyCreation(request.name, role, ttl, Bounds.of(request.users, request.namespaces, request.origins))


def read_rotation(request: pb.RotateKeyRequest) -> timedelta:
    """For how long the secret before remains valid."""
    reader = Reader()
    overlap = reader.duration("overlap", request, "overlap")
    reader.finish()
    return OVERLAP_DEFAULT if overlap is None else overlap


def key_to_pb(key: ApiKey) -> pb.ApiKey:
    """The key, without its secret."""
    return filled(
        pb.ApiKey(),
        key,
        **_bounds_to_pb(key.bounds),
        create_time=key.created_at,
        expire_time=key.expires_at,
        last_use_time=key.last_used_at,
        previous_expire_time=key.previous_expires_at,
    )


def read_grant(request: pb.CreateGrantRequest, caller: Principal) -> Grant:
    """The grant to be made; its creation is set later. If it names no user, it is about the caller's only one."""
    users = caller.bounds.users or ()
    if request.HasField("scope") and not request.scope.user and len(users) == 1:
        request.scope.user = users[0]
    reader = Reader()
    access = reader.enum("access", request.access, _ACCESS)
    expires_at = reader.time("expire_time", request, "expire_time")
    if request.HasField("scope") == bool(request.namespace):
        reader.note("scope", "must be set, or namespace for facts; only one of the two")
    namespace = read_namespace(reader, "namespace", request.namespace) if request.namespace else None
    share = Share(scope_of(request), namespace, may_write=access)
    grant = Grant(request.subject, share, created_at=EPOCH, granted_by="", expires_at=expires_at)
    reader.finish(grant_violations(grant))
    return grant


def read_grant_id(request: pb.AcceptGrantRequest | pb.RevokeGrantRequest) -> str:
    """The id of a grant."""
    if not request.grant_id:
        raise InvalidArgumentError.of("grant_id", "is required")
    return request.grant_id


def grant_to_pb(grant: Grant) -> pb.Grant:
    """The grant."""
    share = grant.share
    return filled(
        pb.Grant(),
        grant,
        scope=share.scope if share.namespace is None else None,
        namespace=share.namespace,
        access=pb.GRANT_ACCESS_WRITE if share.may_write else pb.GRANT_ACCESS_READ,
        create_time=grant.created_at,
        expire_time=grant.expires_at,
        accept_time=grant.accepted_at,
    )


def principal_to_pb(principal: Principal) -> pb.WhoAmIResponse:
    """The caller."""
    bounds = _bounds_to_pb(principal.bounds)
    return filled(pb.WhoAmIResponse(), principal, **bounds, expire_time=principal.expires_at)


def _bounds_to_pb(bounds: Bounds) -> dict[str, Iterable[str]]:
    return {"users": bounds.user_texts, "namespaces": bounds.namespace_texts, "origins": bounds.origins}
