"""Times and days that a person types, in the zone of this machine."""

from datetime import UTC, date, datetime, time


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


def day_of(text: str) -> tuple[datetime, datetime] | None:
    """The first and the last microsecond of the day that a text such as 2027-01-31 names; None for any other text, and
    for a day beyond the calendar.
    """
    try:
        day = date.fromisoformat(text)
        # With fold=1, an hour that is repeated before midnight belongs to the day as a whole.
        first, last = datetime.combine(day, time.min), datetime.combine(day, time.max.replace(fold=1))
        return first.astimezone(), last.astimezone()
    except (ValueError, OverflowError):
        return None


def exact_time(time: datetime) -> str:
    """A time in the zone of this machine, with its full precision: 2027-01-31 12:00 or 2027-01-31 23:59:59.999999."""
    local = time.astimezone().replace(tzinfo=None)
    return local.isoformat(" ", "auto" if local.second or local.microsecond else "minutes")
