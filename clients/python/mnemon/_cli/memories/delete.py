"""The commands that reinforce and forget memories."""

import json
from collections.abc import Callable
from typing import Any

import click

from mnemon._cli.memories.options import which_options
from mnemon._cli.options import json_option
from mnemon._cli.session import Session
from mnemon._errors import InvalidOperationError, MemoryNotFoundError
from mnemon._terminal import echo
from mnemon._values.documents import JsonValue
from mnemon._values.filters import F


@click.command()
@click.argument("memory_ids", nargs=-1, required=True, metavar="MEMORY_ID...")
@json_option
@click.pass_obj
def reinforce(session: Session, memory_ids: tuple[str, ...], *, as_json: bool) -> None:
    """Reset the confidence of reinforceable memories to 1."""
    _each(session.client.memories.reinforce, memory_ids, "reinforced", as_json=as_json)


@click.command()
@click.argument("memory_ids", nargs=-1, metavar="[MEMORY_ID]...")
@click.option("--undo", is_flag=True, help="Undo it: restore forgotten memories.")
@click.option(
    "--purge", is_flag=True, help="Remove permanently, including forgotten memories; options can select them."
)
@which_options
@click.option("--deleted", "only_deleted", is_flag=True, help="With --purge: only memories that are already forgotten.")
@click.option("--dry-run", is_flag=True, help="With --purge: only count.")
@click.option("--yes", "-y", is_flag=True, help="With --purge: do not ask for confirmation.")
@json_option
@click.pass_obj
def forget(
    session: Session,
    memory_ids: tuple[str, ...],
    *,
    undo: bool,
    purge: bool,
    which: dict[str, Any],
    only_deleted: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Forget memories, so that no search finds them. --undo restores them; --purge removes them permanently."""
    if undo and purge:
        raise click.UsageError("--undo and --purge contradict each other; choose one")
    if not purge and (which or only_deleted or dry_run or yes):
        raise click.UsageError("--deleted, --dry-run, --yes and options that say which go with --purge; name memories")
    if not memory_ids and not which and not only_deleted:
        raise click.UsageError("name memories" + (", or say which, such as --user ada or --deleted" if purge else ""))
    if memory_ids and which:
        raise click.UsageError("name memories, or say which ones with options; not both")
    if purge:
        named = {"where": F("memory_id").isin(memory_ids)} if memory_ids else which
        _purge(session, {**named, "only_deleted": only_deleted}, dry_run=dry_run, yes=yes, as_json=as_json)
    elif undo:
        _each(session.client.memories.undelete, memory_ids, "remembered again:", as_json=as_json)
    else:
        _each(session.client.memories.delete, memory_ids, "forgot", as_json=as_json)


def _purge(session: Session, chosen: dict[str, Any], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    found = session.client.memories.purge(dry_run=True, **chosen).purged_count
    if not dry_run and found:
        if not yes:
            click.confirm(f"Remove {_memories(found)} for good?", abort=True, err=True)
        found = session.client.memories.purge(**chosen).purged_count
    if as_json:
        echo(json.dumps({"purged_count": found, "dry_run": dry_run}))
    else:
        echo(f"{_memories(found)} would be purged" if dry_run else f"{_memories(found)} purged")


def _each(call: Callable[[str], JsonValue], memory_ids: tuple[str, ...], done: str, *, as_json: bool) -> None:
    failed = False
    for memory_id in memory_ids:
        try:
            answer = call(memory_id)
        except (MemoryNotFoundError, InvalidOperationError) as error:
            failed = True
            echo(f"Error: {error.message}", err=True)
        else:
            echo(answer.to_json() if as_json else f"{done} {memory_id}")
    if failed:
        raise SystemExit(1)


def _memories(number: int) -> str:
    return f"{number:,} {'memory' if number == 1 else 'memories'}"
