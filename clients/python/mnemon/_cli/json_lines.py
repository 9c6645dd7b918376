"""Reads JSON lines of files and standard input, and shows the result of each."""

import json
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from mnemon._cli.documents.sources import STDIN, Unreadable, without_nulls
from mnemon._cli.progress import BulkProgress
from mnemon._cli.render import plain
from mnemon._cli.session import Session
from mnemon._errors import MnemonError
from mnemon._terminal import echo


@dataclass(frozen=True, slots=True)
class Line:
    """An item of a line, and its place."""

    place: str
    item: Any


ReadLine: TypeAlias = Callable[[str, Any], Line | Unreadable]
"""Reads the item of a line from its JSON."""


def fits(value: object, kind: type) -> bool:
    """Whether the value of a line's field has the type, or is missing."""
    return value in (None, "") or isinstance(value, kind)


def read_json_lines(path: str, read: ReadLine) -> Iterator[Line | Unreadable]:
    """The items of the lines of a file or of standard input, without blank lines."""
    try:
        with sys.stdin.buffer if path == STDIN else Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _read_line(f"{path}:{number}", line, read)
    except OSError as error:
        yield Unreadable(path, error.strerror or type(error).__name__)


def _read_line(place: str, line: bytes, read: ReadLine) -> Line | Unreadable:
    try:
        found = without_nulls(json.loads(line))
    except ValueError as error:
        return Unreadable(
            place, f'not JSON: {error}; a line is a text in quotes, such as "Ada likes tea.", or an object'
        )
    return read(place, found)


@dataclass
class LineReport:
    """Counts what happens to each line, and shows it: sentences for people, JSON lines for programs."""

    session: Session
    progress: BulkProgress
    outcomes: tuple[str, ...]
    """The possible outcomes of a line, except "failed"."""
    as_json: bool
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
        if self.as_json:
            self._print_json({"summary": counts})
        else:
            echo(", ".join(f"{number:,} {name}" for name, number in counts.items()))
        if self.counts["failed"]:
            raise SystemExit(1)

    def _fail(self, place: str, error: dict[str, Any], message: str) -> None:
        self.counts["failed"] += 1
        self._print_json({"line": place, "error": error})
        if not self.as_json:
            self.session.error_console.print(plain(f"failed: {place}: {message}"), soft_wrap=True)
        self.progress.advance()

    def _print_json(self, line: dict[str, Any]) -> None:
        if self.as_json:
            echo(json.dumps(line, ensure_ascii=False))
