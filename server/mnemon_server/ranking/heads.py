"""The head of a record: who wrote its text, when, and under which title, from its metadata.

A head is embedded and indexed before the text, so that questions for an author, a date or a title find the text. It is
never shown or counted. Heads follow from the metadata, the text and the vault's keys alone, so whatever makes vectors
or words again makes the same.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any

from mnemon_server.domain.records import MetadataValue

PART_MAX = 100
"""The maximum number of characters of each part of a head, so that a passage has room for the text behind it."""
SAID_MAX = 100
"""The head leaves out whatever these first characters of a text contain."""

_TITLE, _DAYS = "title", ("date", "time")
_CLOCK = re.compile(r"\d{1,2}:\d\d(?::\d\d)?(?:\s*[ap]\.?m\.?)?(?:,|\s+on)?\s+(?=\w)", re.IGNORECASE)
"""A time of day before a date. Days of ISO times stand without it, too."""
_ISO_DATE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ]\d\d:\d\d.*)?")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of a vault's records."""

    keys: tuple[str, ...] = ()
    """The metadata keys that make a head, in any case; none makes no heads."""

    def of(self, metadata: Mapping[str, MetadataValue], content: str) -> str:
        """The head of a text, such as "Trip. Ann (8 May 2023, 2023-05-08): "; empty if the metadata adds nothing."""
        if not metadata:
            return ""
        titles, names, days = list[str](), list[str](), list[str]()
        for key, value in self._chosen(metadata):
            for given, is_day in _texts(value):
                text = _CLOCK.sub("", given, count=1) if key in _DAYS else given
                part = titles if key == _TITLE else days if is_day or key in _DAYS else names
                if text not in part and not _says(content, text):
                    part.append(text)
        title, name, day = (", ".join(part)[:PART_MAX] for part in (titles, names, days))
        said = " ".join(part for part in (name, f"({day})" if day else "") if part)
        return (f"{title}. " if title else "") + (f"{said}: " if said else "")

    def passage(self, metadata: Mapping[str, MetadataValue], content: str, start: int, end: int | None) -> str:
        """The text of a passage as it is embedded and indexed: the first one has the head."""
        return content[start:end] if start else self.of(metadata, content) + content[:end]

    def are_equal(self, first: Mapping[str, MetadataValue], second: Mapping[str, MetadataValue]) -> bool:
        """Whether both metadata make the same head of any text."""
        return self._chosen(first) == self._chosen(second)

    def has(self, key: str) -> bool:
        """Whether a metadata key may make a head."""
        return key.lower() in map(str.lower, self.keys)

    def _chosen(self, metadata: Mapping[str, MetadataValue]) -> list[tuple[str, MetadataValue]]:
        """The keys in lower case, with their values, in the same order however the metadata is ordered."""
        names = sorted(metadata) if self.keys else []
        chosen = [(name.lower(), metadata[name]) for key in self.keys for name in names if name.lower() == key.lower()]
        if any(key in _DAYS and isinstance(value, str) and _written_out(value.strip()) for key, value in chosen):
            # The author's own day: a time is stored in UTC, where it may be the day before or after.
            return [(key, value) for key, value in chosen if key not in _DAYS or not isinstance(value, datetime)]
        return chosen


NO_HEADS = Heads()


def _texts(value: Any) -> Iterator[tuple[str, bool]]:
    """The texts of a metadata value, each with whether it is a day. Numbers are left out."""
    if isinstance(value, datetime):
        yield from ((text, True) for text in _forms(value, is_date=value.time() == time()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str) and (text := " ".join(value.split())):
        days = _written_out(text)
        yield from ((each, True) for each in days) if days else [(text, False)]


def _written_out(text: str) -> list[str]:
    """The forms of a date or time in ISO 8601, on the day that its own zone shows; empty for any other text."""
    if found := _ISO_DATE.fullmatch(text):
        try:
            return _forms(date.fromisoformat(found[1]), is_date=found[1] == text)
        except ValueError:
            return []
    return []


def _forms(day: date, *, is_date: bool) -> list[str]:
    """The day as questions name it, since a number for the month has no word in common with them; a date without a
    time of day is asked for in its short form, too.
    """
    written = f"{day.day} {_MONTHS[day.month - 1]} {day.year}"
    return [written, f"{day:%Y-%m-%d}"] if is_date else [written]


def _says(content: str, text: str) -> bool:
    """Whether a content begins with a text, or has it as a line, as the searched texts of a fact are."""
    said, text = f"\n{content}\n".lower(), text.lower()
    if f"\n{text}\n" in said:
        return True
    start = said.find(text, 0, SAID_MAX)
    return start > 0 and not (said[start - 1].isalnum() or said[start + len(text)].isalnum())
