"""The commands that remove documents and rebuild the index."""

import json
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from mnemon._cli.documents.options import which_options
from mnemon._cli.options import json_option
from mnemon._cli.session import Session
from mnemon._errors import DocumentNotFoundError
from mnemon._terminal import echo


@click.command()
@click.argument("doc_ids", nargs=-1, metavar="[DOC_ID]...")
@which_options
@click.option("--dry-run", is_flag=True, help="Only count what the filter matches.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(
    session: Session,
    doc_ids: tuple[str, ...],
    which: dict[str, Any],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove documents: those named, or all that --filter, --where and the scope match."""
    if bool(doc_ids) == bool(which):
        raise click.UsageError(
            "name documents, or say which with --filter, --where or a scope such as --project; not both"
        )
    if doc_ids and dry_run:
        raise click.UsageError("--dry-run goes with a filter or a scope; documents that are named need none")
    if doc_ids:
        _delete_named(session, doc_ids, yes=yes, as_json=as_json)
    else:
        _delete_matching(session, which, dry_run=dry_run, yes=yes, as_json=as_json)


def _delete_named(session: Session, doc_ids: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    _confirm(len(doc_ids), yes=yes)
    missing = 0
    for doc_id in doc_ids:
        try:
            receipt = session.client.documents.delete(doc_id)
        except DocumentNotFoundError as error:
            missing += 1
            echo(f"Error: {error.message}", err=True)
        else:
            echo(receipt.to_json() if as_json else f"deleted {doc_id}")
    if missing:
        raise SystemExit(1)


def _delete_matching(session: Session, which: dict[str, Any], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    found = session.client.documents.delete_many(**which, dry_run=True).deleted_count
    if not dry_run and found:
        _confirm(found, yes=yes)
        found = session.client.documents.delete_many(**which).deleted_count
    if as_json:
        echo(json.dumps({"deleted_count": found, "dry_run": dry_run}))
    else:
        echo(f"{found:,} would be deleted" if dry_run else f"{found:,} deleted")


def _confirm(number: int, *, yes: bool) -> None:
    if not yes:
        click.confirm(f"Delete {number:,} document{'' if number == 1 else 's'}?", abort=True, err=True)


@click.command("rebuild-index")
@json_option
@click.pass_obj
def rebuild_index(session: Session, *, as_json: bool) -> None:
    """Rebuild the vector database from the records."""
    console = session.error_console
    columns = (TextColumn("rebuilding"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done, tenths = 0, -1
    with Progress(*columns, console=console, transient=True, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        for progress in session.client.documents.rebuild_index():
            done = progress.done
            bar.update(task, completed=progress.done, total=progress.total)
            if as_json:
                echo(progress.to_json())
            elif bar.disable and (tenth := 10 * progress.done // max(progress.total, 1)) > tenths:
                tenths = tenth
                echo(f"{progress.done:,} of {progress.total:,}", err=True)
    if not as_json:
        echo(f"rebuilt the index of {done:,} documents")
