"""Time, passed in wherever it matters, so that tests can move it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""The current time, aware, in UTC."""


def system_clock() -> datetime:
    """The machine's wall clock."""
    return datetime.now(UTC)


def to_microseconds(time: datetime) -> int:
    """Microseconds since 1970; a naive time is UTC."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    delta = aware - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def from_microseconds(microseconds: int) -> datetime:
    """The time, aware, in UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
