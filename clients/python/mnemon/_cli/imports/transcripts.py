"""Reads the lines of transcripts: who speaks, and when.

A line may begin with a time, as in exports of messengers and meetings: "[12.03.24, 10:15:33] Ann: Hello.",
"3/12/24, 10:15 AM - Ann: Hello.", "[10:15] Ann: Hello.", "2026-03-12 10:15 <Ann> Hello.". Telegram copies the name
first, with the text in the next lines: "Ann, [12.03.24 10:15]".

Subtitles (WebVTT and SubRip) have their texts in cues, each under a line with its span in the recording, which says
nothing about the day: "00:00:05.000 --> 00:00:07.500". A cue names its speaker as "Ann: Hello." or "<v Ann>Hello.</v>".
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from html import unescape
from typing import NamedTuple

from mnemon._cli.imports.placeholders import MARKS, without_placeholder
from mnemon._local_time import in_zone

_DATE = r"(?P<date>\d{1,4}(?P<mark>[./-])\d{1,2}(?P=mark)\d{1,4})"
_CLOCK = (
    r"(?P<hour>\d{1,2})[:.](?P<minute>\d{2})(?:[:.](?P<second>\d{2})(?:[.,]\d+)?)?(?:\s?(?P<half>[AaPp])\.?\s?[Mm]\.?)?"
)
_STAMP = re.compile(rf"(?P<open>\[)?(?:{_DATE},?[\sT])?\s?{_CLOCK}(?(open)\])(?:\s[-\u2013]\s|:?\s)\s?")
_SIGNED = re.compile(rf"(?P<name>[^\[\],:]{{1,60}}), \[{_DATE},?\s{_CLOCK}\]:?\s*")
"""Both the time and its speaker."""
_SPEAKER = re.compile(r"(?:\*\*)?(?P<name>[^\W\d_][^:*]{0,39}?)(?:\*\*)?:(?:\*\*)?(?:\s+|$)")
_ANGLED = re.compile(r"<(?P<name>[^<>\s][^<>]{0,39})>\s+")
_TOLD = re.compile(r"(?:From\s+)?(?P<name>[^:]{1,60}?)(?:\s+to\s+Everyone)?:(?:\s+|$)")
"""The speaker after a time, which may also be a telephone number."""
_CUE = re.compile(r"\s*(?:\d+:)?\d{2}:\d{2}[.,]\d{3}\s+-->\s")
"""The line above the text of a cue."""
_VOICE = re.compile(r"<v(?:\.[^\s>]*)?\s+(?P<name>[^>]+)>")
_TAG = re.compile(r"</?[a-z\d][^<>]*>")
_NAME_WORDS_MAX = 3
_NO_SPEAKERS = {
    *("action", "actions", "agenda", "attendees", "bcc", "cc", "date", "decision", "decisions", "example", "from"),
    *("http", "https", "location", "note", "notes", "participants", "ps", "re", "reply-to", "sent", "subject"),
    *("summary", "time", "title", "to", "todo", "topic", "warning"),
}
"""Words before a colon in notes and mail headers."""
_MARK = re.compile("[./-]")
_CENTURY, _YEAR_MIN, _MONTHS, _NOON = 2000, 1000, 12, 12


class Line(NamedTuple):
    """A line of a transcript."""

    text: str
    """The text after the speaker; the whole line if it does not begin a message."""
    speaker: str = ""
    """Empty if the line continues the previous message."""
    time: datetime | None = None
    """In this machine's time zone; None if the line has no date."""
    is_notice: bool = False
    """Whether it has a date and no speaker: a notice by the messenger."""


class Style(NamedTuple):
    """The format of a transcript."""

    is_timed: bool
    """Whether messages begin with a time. If they do, lines without a time continue the previous message."""
    is_month_first: bool
    """Whether 3/4/2026 is a day in March."""
    is_cued: bool = False
    """Whether it is in the cues of subtitles."""


def style_of(lines: Iterable[str]) -> Style | None:
    """The format of these lines; None if they are not a transcript."""
    is_timed: bool | None = None
    dates, has_half = set[str](), False
    lines = iter(lines)
    for line in lines:
        if is_timed is None and (line.startswith(("WEBVTT", "\ufeffWEBVTT")) or _CUE.match(line)):
            first = next((said for said in _cued([line, *lines]) if said.text.strip()), Line(""))
            return Style(is_timed=False, is_month_first=False, is_cued=True) if first.speaker else None
        if (stamp := _stamp_of(line)) and _speaker_after(stamp):
            # The first message decides: later lines of a long one may look like either kind.
            is_timed = is_timed is not False
            dates.add(stamp["date"] or "")
            has_half = has_half or stamp["half"] is not None
        elif is_timed is None and _speaker_of(line):
            is_timed = False
    return None if is_timed is None else Style(is_timed, _is_month_first(dates, has_half=has_half))


def lines_of(lines: Iterable[str], style: Style) -> Iterator[Line]:
    """Splits each line into time, speaker and text."""
    plain = (each.replace("\r\n", "\n") for each in lines)
    if style.is_cued:
        yield from _cued(plain)
        return
    for line in plain:
        yield _timed(line, style) if style.is_timed else _plain(line)


def _cued(lines: Iterable[str]) -> Iterator[Line]:
    """The lines of subtitles; those outside of the texts of cues are empty.

    A cue continues the previous message unless it names another speaker.
    """
    speaker, is_text, is_first = "", False, False
    for line in lines:
        if _CUE.match(line):
            is_text = is_first = True
            yield Line("")
        elif not is_text or not line.strip():
            is_text = False
            yield Line("")
        else:
            said = _of_cue(line, is_first=is_first)
            yield said._replace(speaker="") if said.speaker == speaker else said
            speaker, is_first = said.speaker or speaker, False


def _of_cue(line: str, *, is_first: bool) -> Line:
    """A line of a cue without its tags; `is_first`: it may begin with the name of the speaker."""
    text = unescape(_TAG.sub("", line))
    if voice := _VOICE.match(line.lstrip()):
        return Line(text, unescape(voice["name"]).strip())
    # A sentence continued from the previous cue may contain a colon, too.
    return _plain(text) if is_first and not text[:1].islower() else Line(text)


def _plain(line: str) -> Line:
    found = _speaker_of(line)
    return Line(line[found.end() :], found["name"]) if found else Line(line)


def _timed(line: str, style: Style) -> Line:
    stamp = _stamp_of(line)
    if stamp is None:
        return Line(without_placeholder(line, is_first=False))
    time = _time_of(stamp, style)
    if speaker := _speaker_after(stamp):
        said = without_placeholder(_behind(line, speaker.end()), is_first=True)
        return Line(said, speaker["name"].strip("~ "), time)
    return Line(line, is_notice=stamp["date"] is not None)


def _behind(line: str, end: int) -> str:
    """The rest of the line from a position that was found without the marks."""
    start = end
    while len(line[:start].translate(MARKS)) < end:
        start += 1
    return line[start:]


def _stamp_of(line: str) -> re.Match[str] | None:
    bare = line.translate(MARKS)
    return _STAMP.match(bare) or _SIGNED.match(bare)


def _speaker_after(stamp: re.Match[str]) -> re.Match[str] | None:
    """The speaker after a time, in the line without marks."""
    if stamp.re is _SIGNED:
        return stamp
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


def _is_month_first(dates: Iterable[str], *, has_half: bool) -> bool:
    """Whether these dates begin with the month. Clocks with AM and PM (`has_half`) are common where they do."""
    for first, second, _ in (map(int, _MARK.split(each)) for each in dates if each):
        if first <= _YEAR_MIN and max(first, second) > _MONTHS:
            return second > first
    return has_half and not any("." in each for each in dates)


def _time_of(stamp: re.Match[str], style: Style) -> datetime | None:
    """The time of a line; None without a valid date."""
    if stamp["date"] is None:
        return None
    first, second, third = map(int, _MARK.split(stamp["date"]))
    year, month, day = (first, second, third) if first > _YEAR_MIN else (third, second, first)
    if first <= _YEAR_MIN and style.is_month_first:
        month, day = day, month
    hour = int(stamp["hour"])
    if stamp["half"]:
        hour = hour % _NOON + (_NOON if stamp["half"] in "Pp" else 0)
    year += _CENTURY if year < _YEAR_MIN else 0
    try:
        clock = time(hour, int(stamp["minute"]), int(stamp["second"] or 0))
        return in_zone(datetime.combine(date(year, month, day), clock))
    except (ValueError, OverflowError, OSError):
        return None
