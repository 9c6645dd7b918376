"""Converts arguments to the fields of messages, and fields back. Errors name the argument."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from google.protobuf import duration_pb2, timestamp_pb2

from mnemon._arguments import plain
from mnemon._local_time import ZONE_RULE, Moment, SkippedTimeError, UnknownZoneError, start_of
from mnemon._values import documents as values
from mnemon.shared.errors import InternalError, InvalidArgumentError
from mnemon.shared.namespaces import label_of, likely_labels
from mnemon.v1 import common_pb2

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def invalid(field: str, description: str) -> InvalidArgumentError:
    """An error about one field that cannot be sent."""
    return InvalidArgumentError.of(field, description)


def text(field: str, given: object) -> str:
    """Text that can be sent: a str that UTF-8 can encode."""
    if not isinstance(given, str):
        raise invalid(field, f"must be text, not {type(given).__name__}")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise invalid(field, f"must be valid Unicode; character {error.start} is a lone surrogate") from None
    return given


def metadata_to_pb(field: str, metadata: object) -> dict[str, common_pb2.MetadataValue]:
    """Metadata as messages. Raises InvalidArgumentError, which names the key, for an invalid value."""
    if not isinstance(metadata, Mapping):
        raise invalid(field, f"must be a mapping of keys to values, not {type(metadata).__name__}")
    return {text(f"{field} key", key): value_to_pb(f"{field}.{key}", value) for key, value in metadata.items()}


def keys(field: str, given: Iterable[str]) -> list[str]:
    """Keys of metadata. A single text is an error, since it would be read as its letters."""
    if isinstance(given, str):
        raise invalid(field, f"must be several keys, such as [{given!r}]")
    return [text(field, key) for key in given]


def filters_to_pb(filters: Mapping[str, values.FilterValue] | None) -> dict[str, common_pb2.MetadataValue]:
    """Filters as messages. An invalid value is sent unset, so that the server ignores and reports it."""
    if not isinstance(filters, Mapping | None):
        raise invalid("filters", f"must be a mapping of keys to values, not {type(filters).__name__}")
    found = {}
    for key, value in (filters or {}).items():
        try:
            found[text("filters key", key)] = value_to_pb(f"filters.{key}", value)
        except InvalidArgumentError:
            if not isinstance(key, str):
                raise
            found[key] = common_pb2.MetadataValue()
    return found


def value_to_pb(field: str, value: object) -> common_pb2.MetadataValue:
    """One typed value as a message. Raises InvalidArgumentError, which names the field, for an invalid value."""
    match value := plain(value):
        case bool():
            return common_pb2.MetadataValue(bool_value=value)
        case int():
            if not _INT64_MIN <= value <= _INT64_MAX:
                raise invalid(field, "must fit into 64 bits")
            return common_pb2.MetadataValue(int_value=value)
        case float():
            return common_pb2.MetadataValue(double_value=value)
        case str():
            return common_pb2.MetadataValue(string_value=text(field, value))
        case datetime():
            return common_pb2.MetadataValue(timestamp_value=time_to_pb(field, value))
        case list() | tuple():
            items = common_pb2.StringList(values=[text(f"{field}[{index}]", item) for index, item in enumerate(value)])
            return common_pb2.MetadataValue(string_list_value=items)
    problem = "; null is not a value" if value is None else f", not {type(value).__name__}"
    raise invalid(field, f"must be text, a whole number, a number, a boolean, a list of texts or a datetime{problem}")


def time_to_pb(field: str, given: object) -> timestamp_pb2.Timestamp:
    """A time as a message. Raises InvalidArgumentError, which names the field, if it has no time zone."""
    if not isinstance(given, datetime):
        raise invalid(field, f"must be a datetime with a time zone, not {type(given).__name__}")
    if given.tzinfo is None:
        raise invalid(field, "must carry a time zone, such as datetime.now(UTC)")
    time = timestamp_pb2.Timestamp()
    try:
        time.FromDatetime(given)
    except (OverflowError, ValueError):
        raise invalid(field, f"must be within the years 1 to 9999 in UTC, not {given.isoformat()}") from None
    return time


def moment(field: str, given: Moment, moment_of: Callable[[Moment], datetime] = start_of) -> datetime:
    """The time of a moment that a caller gives."""
    try:
        return moment_of(given)
    except SkippedTimeError as error:
        raise invalid(field, str(error)) from None
    except UnknownZoneError:
        raise invalid("time_zone", ZONE_RULE) from None
    except OverflowError:
        raise invalid(field, "must be within the years 1 to 9999") from None
    except (TypeError, ValueError):
        raise invalid(
            field, f'must be a datetime, a date, a timedelta, or a text such as "2027-01-31" or "30d", not {given!r}'
        ) from None


def moment_to_pb(
    field: str, given: Moment, moment_of: Callable[[Moment], datetime] = start_of
) -> timestamp_pb2.Timestamp:
    """A moment that a caller gives, as a message."""
    return time_to_pb(field, moment(field, given, moment_of))


def time_from_pb(time: timestamp_pb2.Timestamp) -> datetime:
    """The time of a message: several times faster than the message's own conversion, and used for every record."""
    return _EPOCH + timedelta(0, time.seconds, time.nanos // 1000)


def duration_to_pb(field: str, given: object) -> duration_pb2.Duration:
    """A length of time as a message."""
    if not isinstance(given, timedelta):
        raise invalid(field, f"must be a timedelta, not {type(given).__name__}")
    message = duration_pb2.Duration()
    message.FromTimedelta(given)
    return message


def some_text(field: str, given: object) -> str:
    """Text of a filter. Raises InvalidArgumentError if it is empty, because an empty text in a message means all."""
    found = text(field, given)
    if not found:
        raise invalid(field, f'must not be empty: leave it out, or say where=~F("{field}").exists()')
    return found


def flag_to_pb(field: str, given: object) -> bool:
    """True or False; other values are refused."""
    if not isinstance(given, bool):
        raise invalid(field, f"must be True or False, not {given!r}")
    return given


def int32_to_pb(field: str, given: int) -> int:
    """A number for the wire. A larger one does not fit into the message, and is out of range anyway."""
    if field == "limit" and given == 0:
        # On the wire, 0 means the default, which the caller does not mean.
        raise invalid(field, "must be at least 1")
    return max(_INT32_MIN, min(given, _INT32_MAX))


def share_to_pb(field: str, given: object) -> float | None:
    """A number from 0 to 1, whose range the server checks; None means unknown."""
    if (given := plain(given)) is None:
        return None
    if not isinstance(given, int | float) or isinstance(given, bool):
        raise invalid(field, f"must be a number from 0 to 1, or None, not {given!r}")
    return float(given)


def vector_to_pb(field: str, given: Sequence[float], *, may_be_empty: bool = False) -> list[float]:
    """A vector for a message. Raises InvalidArgumentError if it is empty or holds anything but numbers."""
    try:
        found = [float(number) for number in given]
    except (TypeError, ValueError):
        raise invalid(field, "must be a sequence of numbers") from None
    if not found and not may_be_empty:
        raise invalid(field, "must not be empty; leave it out, and the server embeds the text")
    return found


def texts_to_pb(field: str, given: object) -> list[str]:
    """A list of texts. Raises InvalidArgumentError for a single text, which would be read as its letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid(field, f"must be several texts, such as [{given!r}]")
    return [text(f"{field}[{index}]", each) for index, each in enumerate(given)]


def ids_to_pb(field: str, given: Iterable[str]) -> list[str]:
    """The ids of the records to remove."""
    if isinstance(given, str):
        raise invalid(field, f"must be several ids, such as [{given!r}]")
    ids = [text(field, each) for each in given]
    if not ids:
        # Otherwise a list that happens to be empty would remove all that match the filter.
        raise invalid(field, "must name at least one; to remove all that match a filter, leave it out")
    return ids


def namespace_to_pb(field: str, given: object) -> list[str]:
    """Labels of a namespace; a bare text is not a sequence of labels."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise invalid(field, f"must be a sequence of labels, such as {likely_labels(str(given)[:80])!r}")
    return [text(f"{field}[{number}]", label_of(label)) for number, label in enumerate(given)]


def request_id_to_pb(given: str | None) -> str:
    """The request_id that was given, or a new one: with it, repeating a call is harmless."""
    return text("request_id", given) if given else str(uuid.uuid4())


def value_from_pb(key: str, value: common_pb2.MetadataValue) -> values.MetadataValue:
    """The value of a message, with its type."""
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "string_list_value":
            return list(value.string_list_value.values)
        case "timestamp_value":
            return time_from_pb(value.timestamp_value)
    raise InternalError(f"metadata {key!r} has a kind of value that this client does not know; a newer one is needed")


def metadata_from_pb(metadata: Mapping[str, common_pb2.MetadataValue]) -> dict[str, values.MetadataValue]:
    """The metadata of a message."""
    return {key: value_from_pb(key, value) for key, value in metadata.items()}


def scope_to_pb(field: str, scope: values.Scope) -> common_pb2.Scope:
    """A scope as a message."""
    return common_pb2.Scope(**{name: text(f"{field}.{name}", getattr(scope, name)) for name in values.SCOPE_FIELDS})
