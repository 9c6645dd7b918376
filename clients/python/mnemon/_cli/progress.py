"""Progress of a bulk: a bar with the time left on a terminal, plain lines elsewhere, nothing for programs."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mnemon._cli.session import Session
from mnemon._values.documents import JsonValue
from mnemon.shared.terminal import echo

_Step = TypeVar("_Step", bound=JsonValue)

_PLAIN_LINE_EVERY = 1000
_READ_BYTES = 1 << 20


def count_lines(path: str) -> int:
    """The number of lines of a file; 0 if it cannot be counted without consuming it, such as a pipe."""
    if not Path(path).is_file():
        return 0
    count, last = 0, b"\n"
    try:
        with Path(path).open("rb") as file:
            while block := file.read(_READ_BYTES):
                count += block.count(b"\n")
                last = block[-1:]
    except OSError:
        return 0  # the reader reports the reason
    return count + (last != b"\n")


class BulkProgress:
    """Counts items, and shows the count on `console`; a `total` of 0 means unknown."""

    def __init__(self, console: Console, label: str, total: int, *, quiet: bool) -> None:
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("", total=total or None)
        self._total, self._quiet = total, quiet
        self._seen = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self) -> None:
        """Counts one more."""
        self._seen += 1
        self._bar.update(self._task, advance=1, total=max(self._total, self._seen) if self._total else None)
        if self._bar.disable and not self._quiet and self._seen % _PLAIN_LINE_EVERY == 0:
            of = f" of {self._total:,}" if self._total else ""
            echo(f"{self._seen:,}{of} done", err=True)


def show_progress(
    session: Session,
    doing: str,
    steps: Iterable[_Step],
    share: Callable[[_Step], tuple[int, int]],
    column: ProgressColumn,
    *,
    said: Callable[[int], str],
) -> _Step | None:
    """Shows the steps of a long call: how much of all is done, which `share` tells. Returns the last step."""
    last, tenths, console = None, -1, session.error_console
    columns = (TextColumn(doing), BarColumn(), column, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=session.as_json or not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        for step in steps:
            last, (done, total) = step, share(step)
            bar.update(task, completed=done, total=total)
            if session.as_json:
                echo(step.to_json())
            elif bar.disable and (tenth := 10 * done // max(total, 1)) > tenths:
                tenths = tenth
                echo(f"{said(done)} of {said(total)}", err=True)
    return last
