"""Reads JSON lines of files and standard input, makes records of them, and shows the result of each."""

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from mnemon._cli.documents.sources import Unreadable, without_nulls
from mnemon._cli.encodings import lines_of
from mnemon._cli.options import STDIN
from mnemon._cli.output import plain
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon._cli.session import Session
from mnemon._json import read_json
from mnemon._local_time import SkippedTimeError, local_time
from mnemon._values import facts, memories, timeline
from mnemon._values.documents import ORIGIN_FIELDS, SCOPE_FIELDS
from mnemon.shared.errors import MnemonError
from mnemon.shared.terminal import echo


@dataclass(frozen=True, slots=True)
class Line:
    """An item of a line, and its place."""

    place: str
    item: Any


@dataclass(frozen=True, slots=True)
class LineForm:
    """The conversion of a file's lines to records."""

    kind: type[Any]
    example: str
    """An object that a line may be."""
    fields: Mapping[str, str]
    """The fields of a line, and what each must be: a key of `_TYPES`."""
    required: str = ""
    from_text: Callable[[str], dict[str, Any]] = lambda text: {"content": text}
    """The object that a text in quotes stands for."""
    converted: Callable[[dict[str, Any]], dict[str, Any]] = lambda own: own
    """Makes values of the record of the fields of a line. Raises ValueError, which says what is wrong."""
    defaults: Mapping[str, Any] = field(default_factory=dict)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "true or false": (bool,),
    "an object": (dict,),
    "a list of labels": (list,),
    "a list of numbers": (list,),
    "": (object,),
}


def _time(name: str, text: Any) -> datetime:
    try:
        return local_time(text)
    except SkippedTimeError as error:
        raise ValueError(f'"{name}": {error}') from None
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f'"{name}" must be a time, such as 2027-01-31T12:00Z, not {text}') from None


def _with_times(own: dict[str, Any]) -> dict[str, Any]:
    times = ("create_time", "update_time", "event_time")
    own |= {name: _time(name, own[name]) for name in times if name in own}
    if "ttl_s" in own:
        seconds = own.pop("ttl_s")
        try:
            own["ttl"] = timedelta(seconds=seconds)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f'"ttl_s" must be a number of seconds, such as 3600, not {seconds}') from None
    return own


MEMORY_LINES = LineForm(
    memories.Memory,
    '{"content": "…", "type": "preference"}',
    {
        **dict.fromkeys((*memories.TEXTS, *SCOPE_FIELDS, "decay"), "text"),
        "is_global": "true or false",
        "metadata": "an object",
        "embedding": "a list of numbers",
    },
    required="content",
)
EVENT_LINES = LineForm(
    timeline.EpisodicEvent,
    '{"content": "…", "event_type": "task", "user": "ada"}',
    {
        **dict.fromkeys((*timeline.TEXTS, *SCOPE_FIELDS, "event_time"), "text"),
        "metadata": "an object",
        "importance": "",
    },
    converted=_with_times,
    defaults={"event_type": ""},
)
FACT_LINES = LineForm(
    facts.Fact,
    '{"namespace": ["user", "ada"], "value": {"content": "…"}}',
    {
        "namespace": "a list of labels",
        **dict.fromkeys(("key", *ORIGIN_FIELDS), "text"),
        "metadata": "an object",
        "embedding": "a list of numbers",
        "value": "an object",
        **dict.fromkeys(("create_time", "update_time", "ttl_s", "index"), ""),
    },
    required="value",
    from_text=lambda text: {"value": {"content": text}},
    converted=_with_times,
    defaults={"namespace": (), "key": ""},
)


def read_records(
    path: str, form: LineForm, fields: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Iterator[Line | Unreadable]:
    """The records of a file, or of standard input: one JSON object, or one text in quotes, per line.

    `fields` apply if a line does not set them; `metadata` is added to every line. A record comes with its vector as a
    pair, if it has one.
    """
    for place, found in _read_lines(path):
        if isinstance(found, Unreadable):
            yield found
            continue
        given = form.from_text(found) if isinstance(found, str) else found
        if problem := _problem(form, given):
            yield Unreadable(place, problem)
            continue
        own = {name: value for name, value in given.items() if name in form.fields and value not in (None, "")}
        embedding = own.pop("embedding", None)
        try:
            own = form.converted(own)
        except ValueError as error:
            yield Unreadable(place, str(error))
            continue
        said = {**form.defaults, **fields, **own, "metadata": {**own.get("metadata", {}), **metadata}}
        record = form.kind(**said)
        yield Line(place, record if embedding is None else (record, embedding))


def _read_lines(path: str) -> Iterator[tuple[str, Any]]:
    """The JSON of the lines with their places, without blank lines."""
    try:
        with sys.stdin.buffer if path == STDIN else Path(path).open("rb") as file:
            for number, line in enumerate(lines_of(file), start=1):
                if line.strip():
                    yield f"{path}:{number}", _parsed(f"{path}:{number}", line)
    except OSError as error:
        yield path, Unreadable(path, error.strerror or type(error).__name__)


def _parsed(place: str, line: bytes) -> Any:
    try:
        return without_nulls(read_json(line))
    except ValueError as error:
        advice = 'a line is a text in quotes, such as "Ada likes tea.", or an object'
        return Unreadable(place, f"not JSON: {error}; {advice}")


def _problem(form: LineForm, found: Any) -> str | None:
    if not isinstance(found, dict):
        return f"a line must be quoted text or an object, such as {form.example}"
    # What a list prints as JSON can be read again: the server sets these fields anew.
    known = form.fields.keys() | {each.name for each in fields_of(form.kind)} - {"ttl"}
    if unknown := sorted(found.keys() - known):
        return f"{json.dumps(unknown[0])} is not a field; the fields are {', '.join(sorted(form.fields))}"
    for name, wanted in form.fields.items():
        value = found.get(name)
        is_missing = value in (None, "") and name != form.required
        if not is_missing and not isinstance(value, _TYPES[wanted]):
            return f'"{name}" must be {wanted}'
    return None


@dataclass
class LineReport:
    """Counts what happens to each line, and shows it: sentences for people, JSON lines for programs."""

    session: Session
    progress: BulkProgress
    outcomes: tuple[str, ...]
    """The possible outcomes of a line, except "failed"."""
    counts: Counter[str] = field(default_factory=Counter)
    _places: deque[str] = field(default_factory=deque)

    def items_of(self, lines: Iterable[Line | Unreadable]) -> Iterator[Any]:
        """The items of the lines; invalid lines are counted here."""
        for line in lines:
            if isinstance(line, Unreadable):
                self._fail(line.path, {"message": line.problem}, line.problem)
            else:
                self._places.append(line.place)
                yield line.item

    def show(self, outcome: str, said: dict[str, Any], error: MnemonError | None) -> None:
        """Counts and shows the result of one item; results come in the order of the lines."""
        place = self._places.popleft()
        if error is not None:
            self._fail(place, error.to_dict(), error.message)
            return
        self.counts[outcome] += 1
        self._print_json({"line": place, **said})
        self.progress.advance()

    def show_summary(self) -> None:
        """Prints the counts, and exits with 1 if a line failed."""
        counts = {name: self.counts[name] for name in (*self.outcomes, "failed")}
        if self.session.as_json:
            self._print_json({"summary": counts})
        else:
            echo(", ".join(f"{number:,} {name}" for name, number in counts.items()))
        if self.counts["failed"]:
            raise SystemExit(1)

    def _fail(self, place: str, error: dict[str, Any], message: str) -> None:
        self.counts["failed"] += 1
        self._print_json({"line": place, "error": error})
        if not self.session.as_json:
            self.session.error_console.print(plain(f"failed: {place}: {message}"), soft_wrap=True)
        self.progress.advance()

    def _print_json(self, line: dict[str, Any]) -> None:
        if self.session.as_json:
            echo(json.dumps(line, ensure_ascii=False))


@contextmanager
def store_lines(session: Session, path: str, doing: str, outcomes: tuple[str, ...]) -> Iterator[LineReport]:
    """The report about the lines of a file that are stored within; then the summary."""
    with BulkProgress(session.error_console, doing, count_lines(path), quiet=session.as_json) as progress:
        report = LineReport(session, progress, outcomes)
        yield report
    report.show_summary()
