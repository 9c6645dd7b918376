"""How far a bulk has come: a bar on a terminal, plain lines elsewhere, nothing for programs."""

from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_PLAIN_LINE_EVERY = 1000


class BulkProgress:
    """Counts items, and shows the count on `console`; `total` grows where there are more than was thought."""

    def __init__(self, console: Console, label: str, total: int, *, quiet: bool) -> None:
        columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
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
            click.echo(f"{self._seen:,} done", err=True)
