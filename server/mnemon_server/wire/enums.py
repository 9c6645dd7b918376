"""Our enumerations in messages: the values there have the names of our members, behind a prefix."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor

Member = TypeVar("Member", bound=Enum)


def numbers_of(kind: Any, members: Iterable[Member]) -> Mapping[Member, Any]:
    """The number of each member in a generated enumeration. Raises KeyError if it lacks one."""
    numbers = numbers_by_name(kind.DESCRIPTOR)
    return {member: numbers[member.name] for member in members}


def members_of(kind: Any, members: Iterable[Member], unspecified: Member | None = None) -> Mapping[int, Member]:
    """The member of each number. `unspecified` is the member for 0, if requests may leave it open."""
    known = {number: member for member, number in numbers_of(kind, members).items()}
    return known if unspecified is None else {0: unspecified, **known}


def numbers_by_name(enum: EnumDescriptor) -> Mapping[str, int]:
    """The numbers by their names without the prefix, which the first one shows: it is always UNSPECIFIED."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix): value.number for value in enum.values}
