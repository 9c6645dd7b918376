"""The command that stores memories."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import click

from mnemon._cli.json_lines import LineReport
from mnemon._cli.memories.lines import read_lines
from mnemon._cli.memories.options import memory_options
from mnemon._cli.options import json_option, meta_option
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon._cli.session import Session
from mnemon._errors import MemoryExistsError, MnemonError
from mnemon._terminal import echo
from mnemon._values import documents as values
from mnemon._values.memories import TAGS, Memory, MemoryLike

_SAID = ("content", *TAGS, "is_global", "decay", "metadata")
"""The fields of a memory that a line sets."""


@click.command()
@click.argument("text", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Store the contents of this file of JSON lines; - is standard input.",
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

    A line of the file is a JSON text in quotes, or an object: {"content": "...", "type": "preference", "metadata":
    {...}}. The options apply if a line does not set them. A line with the memory_id of an existing memory updates
    that memory.
    """
    if (text is None) == (path is None):
        raise click.UsageError("give the TEXT to remember, or --file with many; not both")
    if path is not None:
        _remember_file(session, path, fields, metadata, ack=ack, as_json=as_json)
    elif text is not None:
        memory = session.client.remember(text, metadata=metadata, ack=ack, **fields)
        echo(memory.to_json() if as_json else f"remembered {memory.memory_id}")


def _remember_file(
    session: Session,
    path: str,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
    *,
    ack: str,
    as_json: bool,
) -> None:
    with BulkProgress(session.error_console, "remembering", count_lines(path), quiet=as_json) as progress:
        report = LineReport(session, progress, ("remembered", "updated", "unchanged"), as_json=as_json)
        sent: deque[MemoryLike] = deque()
        items = _noted(report.items_of(read_lines(path, fields, metadata)), sent)
        for result in session.client.memories.add_many(items, ack=ack):
            item = sent.popleft()
            if isinstance(result.error, MemoryExistsError):
                _show_update(session, report, item, ack)
            else:
                report.show("remembered", {"memory_id": result.memory_id}, result.error)
    report.show_summary()


def _noted(items: Iterable[MemoryLike], sent: deque[MemoryLike]) -> Iterator[MemoryLike]:
    for item in items:
        sent.append(item)
        yield item


def _show_update(session: Session, report: LineReport, item: MemoryLike, ack: str) -> None:
    """Updates the existing memory from the line."""
    memory, embedding = item if isinstance(item, tuple) else (item, None)
    if not isinstance(memory, Memory):
        raise TypeError("a text has no id that could be taken")
    said = {name: getattr(memory, name) for name in _SAID}
    outcome, error = "unchanged", None
    try:
        stored = session.client.memories.get(memory.memory_id)
        if said != {name: getattr(stored, name) for name in _SAID}:
            vector = embedding if memory.content != stored.content else None
            session.client.memories.update(memory.memory_id, **said, embedding=vector, ack=ack)
            outcome = "updated"
    except MnemonError as failure:
        error = failure
    report.show(outcome, {"memory_id": memory.memory_id}, error)
