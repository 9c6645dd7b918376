"""Times, days and distances that a person types or a program gives; without a zone, in the local one."""

import re
from datetime import UTC, date, datetime, time, timedelta

Moment = datetime | date | timedelta | str
"""A point in time: a time with a zone, a day, a distance from now, or a text such as 2027-01-31 or 2w.

A distance goes back, except where the time must be in the future.
"""

_DISTANCE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:(m|minutes?)|(h|hours?)|(d|days?)|(w|weeks?))")
_UNITS = ("minutes", "hours", "days", "weeks")


class SkippedTimeError(ValueError):
    """A local time that the clocks skipped; the message names the times before and after it."""


def local_time(text: str) -> datetime:
    """The time of a text in ISO 8601, which has the zone of this machine unless it names one.

    Raises:
        SkippedTimeError: it does not exist, because the clocks were put forward.
        ValueError: the text is not a time.
        OverflowError: it is beyond the calendar.
    """
    found = datetime.fromisoformat(text)
    if found.tzinfo:
        return found
    if days := day_of(text):
        return days[0]
    # A skipped time, read by the clocks before and after the change, gives the times on both sides of the gap.
    sides = [found.replace(fold=fold).astimezone(UTC).astimezone().replace(tzinfo=None) for fold in (0, 1)]
    if found not in sides:
        before, after = (each.isoformat(timespec="minutes") for each in sorted(sides))
        raise SkippedTimeError(
            f"{text!r} does not exist here, because the clocks were put forward: say {before} or {after}"
        )
    return found.astimezone()


def distance_of(text: str) -> timedelta | None:
    """The length of time that a text such as 90m, 12h, 30d or 2 weeks names; None for any other text.

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
        return date.fromisoformat(given)
    except ValueError:
        return local_time(given)


def day_of(text: str) -> tuple[datetime, datetime] | None:
    """The first and the last microsecond of the day that a text such as 2027-01-31 names; None for any other text, and
    for a day beyond the calendar.
    """
    try:
        return _ends(date.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _ends(day: date) -> tuple[datetime, datetime]:
    """The first and the last microsecond of a day. Raises OverflowError if it is beyond the calendar."""
    # With fold=1, an hour that is repeated before midnight belongs to the day as a whole.
    first, last = datetime.combine(day, time.min), datetime.combine(day, time.max.replace(fold=1))
    return first.astimezone(), last.astimezone()


def exact_time(time: datetime) -> str:
    """A time in the zone of this machine, with its full precision: 2027-01-31 12:00 or 2027-01-31 23:59:59.999999."""
    local = time.astimezone().replace(tzinfo=None)
    return local.isoformat(" ", "auto" if local.second or local.microsecond else "minutes")
