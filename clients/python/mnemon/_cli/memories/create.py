"""The command that stores memories."""

from typing import Any

import click

from mnemon._cli.json_lines import LineReport
from mnemon._cli.memories.lines import read_lines
from mnemon._cli.memories.options import memory_options
from mnemon._cli.options import json_option, meta_option
from mnemon._cli.progress import BulkProgress
from mnemon._cli.session import Session
from mnemon._values import documents as values


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
        report = LineReport(session, progress, ("remembered",), as_json=as_json)
        items = report.items_of(read_lines(path, fields, metadata))
        for result in session.client.remember_many(items, ack=ack):
            report.show("remembered", {"memory_id": result.memory_id}, result.error)
    report.show_summary()
