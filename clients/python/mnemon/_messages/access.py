"""Converts requests and answers of the access service."""

from collections.abc import Iterable
from datetime import timedelta

from mnemon._enums import choice, members_by_number, numbers_by_member
from mnemon._messages.documents import keys, text, time_from_pb
from mnemon._messages.facts import duration_to_pb
from mnemon._values import access
from mnemon.v1 import access_pb2 as pb

_ENUM = pb.DESCRIPTOR.enum_types_by_name["Role"]
_ROLES = members_by_number(access.Role, _ENUM)
_NUMBERS = numbers_by_member(access.Role, _ENUM)


def create(
    name: str, role: str, ttl: timedelta | None, tenant: str, users: Iterable[str], namespaces: Iterable[str]
) -> pb.CreateKeyRequest:
    """The request for a new key."""
    request = pb.CreateKeyRequest(
        name=text("name", name),
        role=_NUMBERS[choice("role", role, access.Role)],
        tenant=text("tenant", tenant),
        users=keys("users", users),
        namespaces=keys("namespaces", namespaces),
    )
    if ttl is not None:
        request.ttl.CopyFrom(duration_to_pb("ttl", ttl))
    return request


def rotate(key_id: str, overlap: timedelta | None, tenant: str) -> pb.RotateKeyRequest:
    """The request for a new secret."""
    request = pb.RotateKeyRequest(key_id=text("key_id", key_id), tenant=text("tenant", tenant))
    if overlap is not None:
        request.overlap.CopyFrom(duration_to_pb("overlap", overlap))
    return request


def key_from_pb(message: pb.ApiKey) -> access.ApiKey:
    """A key."""
    created = time_from_pb(message, "create_time")
    assert created is not None  # noqa: S101 -- every key has it
    return access.ApiKey(
        key_id=message.key_id,
        name=message.name,
        role=_ROLES[message.role],
        create_time=created,
        expire_time=time_from_pb(message, "expire_time"),
        last_use_time=time_from_pb(message, "last_use_time"),
        previous_expire_time=time_from_pb(message, "previous_expire_time"),
        users=tuple(message.users),
        namespaces=tuple(message.namespaces),
    )


def secret_from_pb(response: pb.CreateKeyResponse | pb.RotateKeyResponse) -> access.KeySecret:
    """A key with its secret."""
    return access.KeySecret(key=key_from_pb(response.key), secret=response.secret)


def page_from_pb(response: pb.ListKeysResponse) -> access.KeyPage:
    """A page of keys."""
    return access.KeyPage(keys=tuple(map(key_from_pb, response.keys)), next_page_token=response.next_page_token)


def identity_from_pb(response: pb.WhoAmIResponse) -> access.Identity:
    """Who the caller is."""
    return access.Identity(
        tenant=response.tenant,
        subject=response.subject,
        role=_ROLES[response.role],
        expire_time=time_from_pb(response, "expire_time"),
        users=tuple(response.users),
        namespaces=tuple(response.namespaces),
    )
