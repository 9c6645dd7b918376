"""Times, and what the clocks of a time zone show, which says to which day a time belongs.

Clocks are passed in as functions, so that tests can control the time.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2}))?", re.ASCII
)

DAY_US = 86_400_000_000
ZONE_RULE = 'must be a time zone of the IANA database, such as "Europe/Berlin"; empty means UTC'

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime in UTC."""


def system_clock() -> datetime:
    """The machine's wall clock."""
    return datetime.now(UTC)


def system_ms() -> int:
    """The machine's wall clock in milliseconds since 1970. It costs a fifth of a datetime."""
    return time.time_ns() // 1_000_000


def utc(moment: datetime) -> datetime:
    """The same time in UTC. A naive time counts as UTC."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970. A naive time counts as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    delta = aware - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_microseconds(microseconds: int) -> datetime:
    """The time as an aware datetime in UTC."""
    # By keyword, a timedelta takes half as long again to make.
    return EPOCH + timedelta(0, 0, microseconds)


def time_of(text: str) -> datetime | None:
    """The time that a text names in RFC 3339, with its zone, or the midnight in UTC with which a date begins; None for
    any other text. Digits beyond microseconds are dropped.
    """
    if not _TIME.fullmatch(text):
        return None
    try:
        return utc(datetime.fromisoformat(text.upper()))
    except (ValueError, OverflowError):
        return None


class Span(NamedTuple):
    """A span of time, in microseconds since 1970 with both ends, in which a zone's clocks are equally far from UTC."""

    first_us: int
    last_us: int
    offset_us: int


def time_zone(name: str) -> tzinfo | None:
    """The zone with this name, in upper or lower case; None if it is unknown. Reads its file."""
    known = _names().get(name.lower())
    return ZoneInfo(known) if known else None


@cache
def _names() -> Mapping[str, str]:
    # Not zoneinfo's own list: that takes a tenth of a second, and includes the zone of this machine as "localtime".
    listed = files("tzdata").joinpath("zones").read_text("ascii").split()
    return {name.lower(): name for name in listed}


def local(moment: datetime, zone: tzinfo) -> datetime:
    """The same time as the clocks of a zone show it; where the calendar ends, they show UTC."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


def in_utc(shown: datetime, zone: tzinfo) -> datetime:
    """The time at which the clocks of a zone show this, in UTC; where the calendar ends, they show UTC."""
    try:
        return shown.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        return shown.replace(tzinfo=UTC)


def local_metadata(metadata: Mapping[str, Any], zone: tzinfo) -> dict[str, Any]:
    """The metadata with times as the clocks of a zone show them. A midnight stays, because a date is stored as one."""
    return {
        key: local(value, zone) if isinstance(value, datetime) and value.time() != datetime.min.time() else value
        for key, value in metadata.items()
    }


def offset_us(time_us: int, zone: tzinfo) -> int:
    """How far a zone's clocks are ahead of UTC at a time, both in microseconds."""
    offset = local(from_microseconds(time_us), zone).utcoffset() or timedelta()
    return offset // timedelta(microseconds=1)


def spans(days: Iterable[int], zone: tzinfo) -> list[Span]:
    """As few spans as possible that contain all of these days of UTC, counted from 1970, in ascending order."""
    found: list[Span] = []
    for span in chain.from_iterable(_spans_of(day, zone) for day in sorted(days)):
        if found and found[-1].offset_us == span.offset_us:
            found[-1] = found[-1]._replace(last_us=span.last_us)
        else:
            found.append(span)
    return found


def _spans_of(day: int, zone: tzinfo) -> tuple[Span, ...]:
    """The spans of a day. No zone has ever changed its clocks twice in one."""
    first, last = day * DAY_US, (day + 1) * DAY_US - 1
    before, after = offset_us(first, zone), offset_us(last, zone)
    if before == after:
        return (Span(first, last, before),)
    change = first + bisect_left(range(first, last), True, key=lambda time_us: offset_us(time_us, zone) != before)
    return Span(first, change - 1, before), Span(change, last, after)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
