"""The command that erases for good."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from mnemon._cli.archive.files import new_file, refuse_existing
from mnemon._cli.options import json_option, labels
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values.erasures import EraseProgress, ErasureReceipt

_TRACES = ("answer", "change", "unmarked", "vector")


@click.command()
@click.option("--user", default="", help="Everything of this user, and the facts in namespaces with this label.")
@click.option(
    "--facts-namespace", "namespace", type=labels, default=None, help="The facts of this namespace and below."
)
@click.option(
    "--revoke-keys", is_flag=True, help="End the API keys that are bound to it. Otherwise, the receipt names them."
)
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--request-id", help="Follow the erasure that an earlier call began with this id.")
@click.option("--receipt", type=click.Path(dir_okay=False), help="Write the signed receipt to this new file.")
@json_option
@click.pass_obj
def erase(
    session: Session,
    *,
    user: str,
    namespace: tuple[str, ...] | None,
    revoke_keys: bool,
    dry_run: bool,
    yes: bool,
    request_id: str | None,
    receipt: str | None,
    as_json: bool,
) -> None:
    """Erase a user, or a namespace of facts, from every file of the server, and get a signed receipt.

    Exit code 1 if something is left.
    """
    if bool(user) == bool(namespace):
        raise click.UsageError("say what to erase with --user or with --facts-namespace")
    if receipt is not None:
        refuse_existing(receipt, "name another file for the receipt")
    target: dict[str, Any] = {"user": user, "namespace": namespace or ()}
    if dry_run or not yes:
        counts = session.client.erasures.count(**target)
        if dry_run:
            echo(json.dumps(counts) if as_json else f"{_records(counts)} would be erased")
            return
        click.confirm(f"Erase {_records(counts)} for good?", abort=True, err=True)
    # The file is opened first, so nothing is erased when the receipt cannot be written.
    with nullcontext() if receipt is None else new_file(receipt) as file:
        erased = _run(session, request_id=request_id, quiet=as_json, revoke_keys=revoke_keys, **target)
        echo(erased.to_json() if as_json else _told(erased))
        if file:
            file.write(erased.to_json() + "\n")
    if not erased.is_complete:
        raise SystemExit(1)


def _run(session: Session, *, request_id: str | None, quiet: bool, **target: Any) -> ErasureReceipt:
    console = session.error_console
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("finding", total=None)
        said = ""

        def show(progress: EraseProgress) -> None:
            nonlocal said
            what = f"{progress.phase}: {progress.problem}" if progress.problem else str(progress.phase)
            bar.update(task, description=what, completed=progress.done, total=progress.total or None)
            if bar.disable and not quiet and what != said:
                said = what
                echo(what, err=True)

        return session.client.erasures.run(request_id=request_id, on_progress=show, **target)


def _records(counts: Mapping[str, int]) -> str:
    named = [f"{count:,} {store}" for store, count in counts.items() if count and store not in _TRACES]
    return ", ".join(named) or "nothing"


def _told(receipt: ErasureReceipt) -> str:
    lines = [f"erased: {_records(receipt.counts)}; {receipt.tombstone_count:,} tombstones"]
    lines += [f"out of reach: {place}" for place in receipt.out_of_reach]
    lines += [f"STILL IN {file}" for file in receipt.found_files]
    if receipt.found_neighbours:
        lines.append(f"STILL FOUND by searches: {receipt.found_neighbours:,}")
    return "\n".join(lines)
