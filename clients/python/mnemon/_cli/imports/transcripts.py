"""Reads the lines of transcripts: who speaks, and when.

A line may begin with a time, as messengers and meeting programs write it: "[12.03.24, 10:15:33] Ann: Hello.",
"3/12/24, 10:15 AM - Ann: Hello.", "[10:15] Ann: Hello.", "2026-03-12 10:15 <Ann> Hello.".
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

_DATE = r"(?P<date>\d{1,4}(?P<mark>[./-])\d{1,2}(?P=mark)\d{1,4})"
_CLOCK = (
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<second>\d{2})(?:[.,]\d+)?)?(?:\s?(?P<half>[AaPp])\.?\s?[Mm]\.?)?"
)
_STAMP = re.compile(rf"(?P<open>\[)?(?:{_DATE},?[\sT])?\s?{_CLOCK}(?(open)\])(?:\s[-\u2013]\s|:?\s)\s?")
_SPEAKER = re.compile(r"(?:\*\*)?(?P<name>[^\W\d_][^:*]{0,39}?)(?:\*\*)?:(?:\*\*)?(?:\s+|$)")
_ANGLED = re.compile(r"<(?P<name>[^<>\s][^<>]{0,39})>\s+")
_TOLD = re.compile(r"(?:From\s+)?(?P<name>[^:]{1,60}?)(?:\s+to\s+Everyone)?:(?:\s+|$)")
"""The speaker behind a time, who may also be a telephone number."""
_MARKS = str.maketrans({**dict.fromkeys("\ufeff\u200e\u200f\u202a\u202c"), "\u202f": " ", "\xa0": " "})
"""Marks of direction, which messengers write before a time or a name, and spaces that keep a time together."""
_NAME_WORDS_MAX = 3
_NO_SPEAKERS = {
    *("agenda", "attendees", "bcc", "cc", "date", "example", "from", "http", "https", "location", "note", "notes"),
    *("participants", "ps", "re", "reply-to", "sent", "subject", "summary", "time", "title", "to", "todo", "topic"),
    "warning",
}
"""Words that stand before a colon in notes and in the heads of mails."""
_CENTURY, _YEAR_MIN, _NOON = 2000, 1000, 12

DayOrder = Literal["day first", "month first", "not told"]


class Line(NamedTuple):
    """A line of a transcript."""

    text: str
    """The words; with the speaker's name and the time if it does not begin a message."""
    speaker: str = ""
    """Who begins to speak; empty if the line goes on with the message before."""
    time: datetime | None = None
    """When, by the clock of the speaker."""
    is_notice: bool = False
    """Whether it has a time and no speaker: a messenger tells something itself."""


@dataclass(frozen=True, slots=True)
class Style:
    """How the lines of a transcript are written."""

    is_timed: bool
    """Whether messages begin with a time; a line without one then goes on with the message before."""
    day_order: DayOrder

    @property
    def is_month_first(self) -> bool:
        """Whether 3/4/2026 is a day in March."""
        return self.day_order == "month first"


def style_of(lines: Iterable[str]) -> Style | None:
    """How these lines are written; None if they are no transcript."""
    timed, named, dates = 0, 0, list[re.Match[str]]()
    for line in lines:
        if (stamp := _stamp_of(line)) and _speaker_after(stamp):
            timed += 1
            dates.append(stamp)
        elif _speaker_of(line):
            named += 1
    if not timed + named:
        return None
    # A message of several lines may have any number of lines that look like a speaker.
    return Style(is_timed=bool(timed), day_order=_day_order(dates))


def lines_of(lines: Iterable[str], style: Style) -> Iterator[Line]:
    """The lines as they are written."""
    for line in lines:
        yield _timed(line, style) if style.is_timed else _plain(line)


def _plain(line: str) -> Line:
    found = _speaker_of(line)
    return Line(line[found.end() :], found["name"]) if found else Line(line)


def _timed(line: str, style: Style) -> Line:
    stamp = _stamp_of(line)
    if stamp is None:
        return Line(line)
    time = _time_of(stamp, style)
    if speaker := _speaker_after(stamp):
        return Line(_behind(line, speaker.end()), speaker["name"].strip("~ "), time)
    return Line(line, is_notice=stamp["date"] is not None)


def _behind(line: str, end: int) -> str:
    """The line from a place on that is counted without marks."""
    start = end
    while len(line[:start].translate(_MARKS)) < end:
        start += 1
    return line[start:]


def _stamp_of(line: str) -> re.Match[str] | None:
    return _STAMP.match(line.translate(_MARKS))


def _speaker_after(stamp: re.Match[str]) -> re.Match[str] | None:
    """The speaker behind a time; the whole line is matched, without marks."""
    for pattern in (_ANGLED, _TOLD):
        if found := pattern.match(stamp.string, stamp.end()):
            return found
    return None


def _speaker_of(line: str) -> re.Match[str] | None:
    """The beginning of a line that names a speaker."""
    found = _SPEAKER.match(line) or _ANGLED.match(line)
    if found is None or len(found["name"].split()) > _NAME_WORDS_MAX or found["name"].casefold() in _NO_SPEAKERS:
        return None
    return found


def _day_order(stamps: Iterable[re.Match[str]]) -> DayOrder:
    """Whether dates begin with the day or the month, as far as they tell."""
    has_half = False
    for stamp in stamps:
        has_half = has_half or stamp["half"] is not None
        if stamp["date"] is None:
            continue
        first, second, _ = map(int, re.split("[./-]", stamp["date"]))
        if first > _YEAR_MIN:
            continue
        if "." in stamp["date"] or first > _NOON:
            return "day first"
        if second > _NOON:
            return "month first"
    # Twelve hours are usual where the month comes first.
    return "month first" if has_half else "not told"


def _time_of(stamp: re.Match[str], style: Style) -> datetime | None:
    """The time of a line in the time zone of this machine; None if it has no date, or none that exists."""
    if stamp["date"] is None:
        return None
    first, second, third = map(int, re.split("[./-]", stamp["date"]))
    year, month, day = (first, second, third) if first > _YEAR_MIN else (third, second, first)
    if first <= _YEAR_MIN and style.is_month_first:
        month, day = day, month
    hour = int(stamp["hour"])
    if stamp["half"]:
        hour = hour % _NOON + (_NOON if stamp["half"] in "Pp" else 0)
    year += _CENTURY if year < _YEAR_MIN else 0
    try:
        return datetime(year, month, day, hour, int(stamp["minute"]), int(stamp["second"] or 0)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
