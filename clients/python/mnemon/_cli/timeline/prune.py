"""The commands that permanently remove events, and free their disk space."""

import json
from datetime import datetime
from typing import Any

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from mnemon._cli.memories.options import past
from mnemon._cli.options import json_option
from mnemon._cli.render import short_time
from mnemon._cli.session import Session
from mnemon._cli.timeline.options import which_events_options
from mnemon._cli.timeline.render import mebibytes
from mnemon._terminal import echo
from mnemon._values import timeline


@click.command()
@click.argument("event_ids", nargs=-1, metavar="[EVENT_ID]...")
@click.option("--before", type=past, metavar="TIME|AGE", help="Only events before this time: 2027-01-31, 12h, 30d.")
@which_events_options
@click.option("--allow-missing", is_flag=True, help="Ignore unknown ids.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def prune(
    session: Session,
    event_ids: tuple[str, ...],
    *,
    before: datetime | None,
    which: dict[str, Any],
    allow_missing: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Permanently remove events, named ones or all that match, and the statements that the bridge made from them."""
    if bool(event_ids) == bool(which or before):
        raise click.UsageError("name events, or say which with options such as --before or --user; not both")
    asked: dict[str, Any] = {"before": before, "allow_missing": allow_missing, **which}
    receipt = session.client.timeline.delete_many(event_ids or None, dry_run=True, **asked)
    if not dry_run and receipt.pruned_count:
        if not yes:
            click.confirm(f"Remove {_number(receipt)} for good?", abort=True, err=True)
        receipt = session.client.timeline.delete_many(event_ids or None, **asked)
    if as_json:
        echo(json.dumps({**receipt.to_dict(), "dry_run": dry_run}))
    else:
        echo(f"{_number(receipt)} {'would be removed' if dry_run else 'removed'}")


def _number(receipt: timeline.PruneReceipt) -> str:
    events = f"{receipt.pruned_count:,} event{'' if receipt.pruned_count == 1 else 's'}"
    if not receipt.pruned_count:
        return events
    return f"{events} from {short_time(receipt.earliest)} to {short_time(receipt.latest)}"


@click.command()
@json_option
@click.pass_obj
def compact(session: Session, *, as_json: bool) -> None:
    """Seal and rewrite the segments of the timeline, and free the disk space of removed events."""
    console = session.error_console
    columns = (TextColumn("compacting"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    last, tenths = None, -1
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        for progress in session.client.timeline.compact():
            last = progress
            bar.update(task, completed=progress.processed_bytes, total=progress.total_bytes)
            if as_json:
                echo(progress.to_json())
            elif bar.disable and (tenth := 10 * progress.processed_bytes // max(progress.total_bytes, 1)) > tenths:
                tenths = tenth
                echo(f"{mebibytes(progress.processed_bytes)} of {mebibytes(progress.total_bytes)}", err=True)
    if last and not as_json:
        segments = f"{last.segment_count:,} segment{'' if last.segment_count == 1 else 's'}"
        echo(f"{segments}, {mebibytes(last.reclaimed_bytes)} given back")
