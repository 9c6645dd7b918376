"""The command that records events."""

from typing import Any

import click

from mnemon._cli.json_lines import LineReport
from mnemon._cli.options import json_option, meta_option
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon._cli.session import Session
from mnemon._cli.timeline.lines import read_events
from mnemon._cli.timeline.options import event_options
from mnemon._terminal import echo
from mnemon._values import documents as values
from mnemon._values import timeline


@click.command()
@click.argument("text", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Record the contents of this file of JSON lines; - is standard input.",
)
@event_options
@meta_option("event")
@json_option
@click.pass_obj
def record(
    session: Session,
    text: str | None,
    path: str | None,
    *,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
    as_json: bool,
) -> None:
    """Record TEXT as an event of the timeline, or many with --file.

    A line of the file is a JSON text in quotes, or an object: {"content": "...", "event_type": "task", "event_time":
    "..."}. The options apply if a line does not set them. Known events are not stored again.
    """
    if (text is None) == (path is None):
        raise click.UsageError("give the TEXT of what happened, or --file with many; not both")
    if path is not None:
        _record_file(session, path, fields, metadata, as_json=as_json)
        return
    if missing := [name for name, field in (("--type", "event_type"), ("--user", "user")) if field not in fields]:
        raise click.UsageError(f"say {' and '.join(missing)}: what kind of event it is, and whose")
    receipt = session.client.timeline.add(content=text or "", metadata=metadata, **fields)
    echo(receipt.to_json() if as_json else f"{_outcome(receipt)} {receipt.event_id}")


def _record_file(
    session: Session, path: str, fields: dict[str, Any], metadata: dict[str, values.MetadataValue], *, as_json: bool
) -> None:
    with BulkProgress(session.error_console, "recording", count_lines(path), quiet=as_json) as progress:
        report = LineReport(session, progress, ("recorded", "known"), as_json=as_json)
        for result in session.client.timeline.add_many(report.items_of(read_events(path, fields, metadata))):
            said = {"event_id": result.event_id, "duplicate": result.duplicate}
            report.show("known" if result.duplicate else "recorded", said, result.error)
    report.show_summary()


def _outcome(receipt: timeline.EventReceipt) -> str:
    return "known already:" if receipt.duplicate else "recorded"
