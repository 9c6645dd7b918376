"""Fields that values and protobuf messages have in common."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from mnemon._arguments import unknown_name
from mnemon._messages import documents as convert
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.filters import AnyOf, F, Filter

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_VALUES_MAX = 256
"""Most values of one condition."""

_Reader = Callable[[Any, str], Any]


def texts_of(value: object, names: Iterable[str]) -> dict[str, Any]:
    """These texts of a value, for its message. Raises InvalidArgumentError if one is not text."""
    return {name: convert.text(name, getattr(value, name)) for name in names}


def int32_to_pb(given: int) -> int:
    """A number for the wire. A larger one does not fit into the message, and is out of range anyway."""
    return max(_INT32_MIN, min(given, _INT32_MAX))


def limit_to_pb(given: int | None) -> int:
    """Most results, for the wire; None means the server's default."""
    if given == 0:
        # On the wire, 0 means the default, which the caller does not mean.
        raise convert.invalid("limit", "must be at least 1")
    return int32_to_pb(given or 0)


def ids_to_pb(field: str, given: Iterable[str] | None) -> list[str]:
    """The ids of the records to remove; None if a filter selects them."""
    if given is None:
        return []
    if isinstance(given, str):
        raise convert.invalid(field, f"must be several ids, such as [{given!r}]")
    ids = [convert.text(field, each) for each in given]
    if not ids:
        # Otherwise a list that happens to be empty would remove all that match the filter.
        raise convert.invalid(field, "must name at least one; to remove all that match a filter, leave it out")
    return ids


def ids_filter(argument: str, given: Iterable[str], field: str, *, alone: bool) -> Filter:
    """The records with these ids, where a call takes no ids. Raises InvalidArgumentError unless they are `alone`."""
    ids = ids_to_pb(argument, given)
    if not alone:
        raise convert.invalid(argument, "must come without a filter: name records, or say which match")
    return AnyOf(tuple(F(field).isin(ids[first : first + _VALUES_MAX]) for first in range(0, len(ids), _VALUES_MAX)))


def field_reader(kind: type[Any], descriptor: Descriptor) -> Callable[[Any], dict[str, Any]]:
    """Reads, for a value of this kind, all fields that have the same name in the message or in its scope.

    A number or a time that is not set is None, and a list becomes a tuple. Enums and lists of messages are left out.
    """
    names = [each.name for each in fields(kind) if each.name in descriptor.fields_by_name]
    others = {name: reader for name in names if (reader := _reader(descriptor.fields_by_name[name]))}
    plain = [name for name in names if _is_plain(descriptor.fields_by_name[name])]
    # In one step each, since a page has a thousand messages.
    plain_of, scope_of = attrgetter(*plain), attrgetter(*SCOPE_FIELDS)

    def read(message: Any) -> dict[str, Any]:
        found = dict(zip(plain, plain_of(message), strict=True))
        found.update(zip(SCOPE_FIELDS, scope_of(message.scope), strict=True))
        for name, reader in others.items():
            found[name] = reader(message, name)
        return found

    return read


def check_keywords(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises TypeError for an unknown keyword argument, as Python does, with the one that may be meant."""
    names = list(known)
    if unknown := sorted(given.keys() - set(names)):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}; {unknown_name(unknown[0], names)}")


def _is_plain(field: FieldDescriptor) -> bool:
    return not (field.is_repeated or field.has_presence or field.enum_type)


def _reader(field: FieldDescriptor) -> _Reader | None:
    if field.name == "metadata":
        return lambda message, name: convert.metadata_from_pb(getattr(message, name))
    if field.message_type is not None:
        return convert.time_from_pb if field.message_type is Timestamp.DESCRIPTOR else None
    if field.is_repeated:
        return lambda message, name: tuple(getattr(message, name))
    if field.has_presence:
        return lambda message, name: getattr(message, name) if message.HasField(name) else None
    return None
