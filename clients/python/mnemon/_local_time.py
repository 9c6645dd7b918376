"""Times, days and distances that a person types or a program gives; without a zone, in the one of `days_in`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

Moment = datetime | date | timedelta | str
"""A point in time: a time with a zone, a day, a distance from now, or a text such as 2027-01-31, yesterday or 2w.

A distance goes back, except where the time must be in the future.
"""

_DISTANCE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:(s|seconds?)|(m|minutes?)|(h|hours?)|(d|days?)|(w|weeks?))")
_UNITS = ("seconds", "minutes", "hours", "days", "weeks")
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


ZONE_RULE = 'must be a time zone of the IANA database, such as "Europe/Berlin"'

_zone_name: ContextVar[str] = ContextVar("_zone_name", default="")


class UnknownZoneError(ValueError):
    """The name of a time zone is unknown."""


@contextmanager
def days_in(zone: str) -> Iterator[None]:
    """Meanwhile, days and times that name no zone are those of the one with this name; if empty, of this machine."""
    token = _zone_name.set(zone)
    try:
        yield
    finally:
        _zone_name.reset(token)


@lru_cache(maxsize=64)
def zone_named(name: str) -> tzinfo:
    """The zone with this name, in upper or lower case. Raises UnknownZoneError."""
    try:
        return ZoneInfo(name)
    except (LookupError, TypeError, ValueError, OSError):
        for known in available_timezones():
            if known.lower() == str(name).lower():
                return ZoneInfo(known)
    raise UnknownZoneError(name)


def in_zone(time: datetime) -> datetime:
    """The time as the clocks of the zone show it. One without a zone is read from them. Where the calendar ends, the
    clocks show UTC.

    Raises UnknownZoneError.
    """
    zone = zone_named(name) if (name := _zone_name.get()) else None
    try:
        found = time.astimezone(zone) if zone is None or time.tzinfo else time.replace(tzinfo=zone)
        found.astimezone(UTC)
    except (OverflowError, ValueError):
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return found


class SkippedTimeError(ValueError):
    """A local time that the clocks skipped; the message names the times before and after it."""


def local_time(text: str) -> datetime:
    """The time of a text in ISO 8601, which may name its own zone, or the beginning of a day.

    Raises:
        SkippedTimeError: it does not exist, because the clocks were put forward.
        ValueError: the text is not a time.
        OverflowError: it is beyond the calendar.
    """
    if days := day_of(text):
        return days[0]
    found = datetime.fromisoformat(text)
    if found.tzinfo:
        return found
    if (known := in_zone(found)).tzinfo is UTC:
        return known
    # A skipped time, read by the clocks before and after the change, gives the times on both sides of the gap.
    sides = [in_zone(in_zone(found.replace(fold=fold)).astimezone(UTC)).replace(tzinfo=None) for fold in (0, 1)]
    if found not in sides:
        before, after = (each.isoformat(timespec="minutes") for each in sorted(sides))
        raise SkippedTimeError(
            f"{text!r} does not exist here, because the clocks were put forward: say {before} or {after}"
        )
    return known


def distance_of(text: str) -> timedelta | None:
    """The length of time that a text such as 30s, 90m, 12h, 30d or 2 weeks names; None for any other text.

    Raises OverflowError if it is longer than a timedelta can be.
    """
    found = _DISTANCE.fullmatch(text)
    if not found:
        return None
    number, *units = found.groups()
    return timedelta(**{name: float(number) for name, unit in zip(_UNITS, units, strict=True) if unit})


def start_of(given: Moment) -> datetime:
    """The time at which a span begins that is given by its first day, its first time, or its distance back from now.

    Raises:
        SkippedTimeError: it does not exist, because the clocks were put forward.
        ValueError: it is a text that names no time.
        TypeError: it is no Moment.
        OverflowError: it is beyond the calendar.
    """
    match _parsed(given):
        case timedelta() as distance:
            return datetime.now(UTC) - distance
        case datetime() as found:
            return found
        case date() as day:
            return _ends(day)[0]
    raise TypeError(given)


def end_of(given: Moment) -> datetime:
    """The time at which a span ends, likewise; a day counts to its last microsecond."""
    found = _parsed(given)
    if isinstance(found, date) and not isinstance(found, datetime):
        return _ends(found)[1]
    return start_of(found)


def deadline_of(given: Moment) -> datetime:
    """The time at which a span ends that begins now, likewise; a distance counts forward from now."""
    found = _parsed(given)
    return datetime.now(UTC) + found if isinstance(found, timedelta) else end_of(found)


def _parsed(given: Moment) -> datetime | date | timedelta:
    if not isinstance(given, str):
        return given
    if (distance := distance_of(given)) is not None:
        return distance
    try:
        return named_day(given)
    except ValueError:
        return local_time(given)


def named_day(text: str) -> date:
    """The day of a text such as 2027-01-31 or yesterday. Raises ValueError for any other text."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        if (away := _DAYS.get(text.lower())) is None:
            raise
    return in_zone(datetime.now(UTC)).date() + timedelta(days=away)


def day_of(text: str) -> tuple[datetime, datetime] | None:
    """The first and the last microsecond of the day of a text; None for any other text."""
    try:
        return _ends(named_day(text))
    except ValueError:
        return None


def _ends(day: date) -> tuple[datetime, datetime]:
    """The first and the last microsecond of a day."""
    # With fold=1, an hour that is repeated before midnight belongs to the day as a whole.
    first, last = datetime.combine(day, time.min), datetime.combine(day, time.max.replace(fold=1))
    return in_zone(first), in_zone(last)


def exact_time(time: datetime) -> str:
    """A time with its full precision: 2027-01-31 12:00 or 2027-01-31 23:59:59.999999."""
    local = in_zone(time).replace(tzinfo=None)
    return local.isoformat(" ", "auto" if local.second or local.microsecond else "minutes")
