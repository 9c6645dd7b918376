"""Members of enumerations by name and by wire number."""

from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.descriptor import EnumDescriptor

from mnemon.shared.errors import InvalidArgumentError

_Member = TypeVar("_Member", bound=StrEnum)


def members_by_number(members: type[_Member], enum: EnumDescriptor) -> dict[int, _Member]:
    """The members by the numbers of the values of the same name."""
    names = value_names(enum)
    return {number: members[name] for number, name in names.items() if name in members.__members__}


def numbers_by_member(members: type[_Member], enum: EnumDescriptor) -> dict[_Member, Any]:
    """The numbers of the members, which messages take as values of the enumeration."""
    return {member: number for number, member in members_by_number(members, enum).items()}


def value_names(enum: EnumDescriptor) -> dict[int, str]:
    """The names of the values without the enumeration's prefix, such as KEEP_CANDIDATE; without UNSPECIFIED."""
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {number: value.name.removeprefix(prefix) for number, value in enum.values_by_number.items() if number}


def words_by_number(enum: EnumDescriptor) -> dict[int, str]:
    """The values as words of a rule, such as "keep-candidate"; without UNSPECIFIED."""
    return {number: name.lower().replace("_", "-") for number, name in value_names(enum).items()}


def choice(field: str, given: str, among: type[_Member]) -> _Member:
    """The member that is named, or an error that lists the names."""
    try:
        return among(given)
    except ValueError:
        names = ", ".join(repr(str(each)) for each in among)
        raise InvalidArgumentError.of(field, f"must be one of {names}, not {given!r}") from None
