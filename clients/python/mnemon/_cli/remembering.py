"""The command that stores memories."""

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click

from mnemon import _memory_values as memories
from mnemon import _values as values
from mnemon._cli.memory_lines import MemoryLine, read_lines
from mnemon._cli.memory_options import memory_options
from mnemon._cli.options import json_option, meta_option
from mnemon._cli.progress import BulkProgress
from mnemon._cli.render import plain
from mnemon._cli.session import Session
from mnemon._cli.sources import Unreadable


@click.command()
@click.argument("text", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Store what this file of JSON lines holds; - is standard input.",
)
@memory_options
@meta_option("memory")
@click.option(
    "--ack",
    type=click.Choice([each.value for each in values.AckLevel]),
    default=values.AckLevel.DURABLE.value,
    show_default=True,
    help="When a memory counts as stored: on disk, or also in the vector database.",
)
@json_option
@click.pass_obj
def remember(
    session: Session,
    text: str | None,
    path: str | None,
    ack: str,
    *,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
    as_json: bool,
) -> None:
    """Store TEXT as a memory, or many with --file.

    A line of the file is a text, or an object: {"content": "...", "type": "preference", "metadata": {...}}. The
    options count where a line has none of its own.
    """
    if (text is None) == (path is None):
        raise click.UsageError("give the TEXT to remember, or --file with many; not both")
    if path is not None:
        _remember_file(session, path, fields, metadata, ack=ack, as_json=as_json)
    elif text is not None:
        memory = session.client.remember(text, metadata=metadata, ack=ack, **fields)
        click.echo(memory.to_json() if as_json else f"remembered {memory.memory_id}")


def _remember_file(
    session: Session,
    path: str,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
    *,
    ack: str,
    as_json: bool,
) -> None:
    with BulkProgress(session.error_console, "remembering", 0, quiet=as_json) as progress:
        report = _Report(session, progress, as_json=as_json)
        items = report.items_of(read_lines(path, fields, metadata))
        for result in session.client.remember_many(items, ack=ack):
            report.show(result)
    report.show_summary()
    if report.counts["failed"]:
        raise SystemExit(1)


@dataclass
class _Report:
    """Counts what happens to each line, and shows it: sentences for people, JSON lines for programs."""

    session: Session
    progress: BulkProgress
    as_json: bool
    counts: Counter[str] = field(default_factory=Counter)
    _places: deque[str] = field(default_factory=deque)

    def items_of(self, lines: Iterable[MemoryLine | Unreadable]) -> Iterator[memories.MemoryLike]:
        """The memories among the lines; what is none is counted here."""
        for line in lines:
            if isinstance(line, Unreadable):
                self._fail(line.path, {"message": line.problem}, line.problem)
            else:
                self._places.append(line.place)
                yield line.item

    def show(self, result: memories.RememberResult) -> None:
        """Counts and shows the result of one memory; results come in the order of the lines."""
        place = self._places.popleft()
        if result.error is not None:
            self._fail(place, result.error.to_dict(), result.error.message)
            return
        self.counts["remembered"] += 1
        self._print_json({"line": place, "memory_id": result.memory_id})
        self.progress.advance()

    def show_summary(self) -> None:
        """Says how many there were."""
        counts = {name: self.counts[name] for name in ("remembered", "failed")}
        if self.as_json:
            self._print_json({"summary": counts})
        else:
            click.echo(", ".join(f"{number:,} {name}" for name, number in counts.items()))

    def _fail(self, place: str, error: dict[str, Any], message: str) -> None:
        self.counts["failed"] += 1
        self._print_json({"line": place, "error": error})
        if not self.as_json:
            self.session.error_console.print(plain(f"failed: {place}: {message}"), soft_wrap=True)
        self.progress.advance()

    def _print_json(self, line: dict[str, Any]) -> None:
        if self.as_json:
            click.echo(json.dumps(line, ensure_ascii=False))
