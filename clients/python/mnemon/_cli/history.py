"""The commands for earlier versions of records."""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import click
from rich.console import Group, RenderableType

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.session import Session
from mnemon._cli.statements import tell_restored
from mnemon.shared.terminal import echo

_KINDS = {"document": "documents", "memory": "memories", "statement": "semantic", "fact": "facts"}
"""The kinds, and the objects of the client."""


@click.command()
@click.argument("kind", type=opt.choice_of(_KINDS))
@click.argument("record", nargs=-1, required=True, metavar="ID")
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def versions(session: Session, kind: str, record: tuple[str, ...], *, limit: int) -> None:
    """Show the earlier versions of the record with ID, newest first; a fact is named by its NAMESPACE and KEY."""
    records, name = getattr(session.client, _KINDS[kind]), _name(kind, record)
    found = records.versions(*name, page_size=out.page_size_of(limit))
    first = next(found, None)
    if first is None:
        # Fails if there is no such record.
        records.get(*name)
    out.show_list(session, chain([] if first is None else [first], found), version_table, limit=limit)


@click.command()
@click.argument("kind", type=opt.choice_of(_KINDS))
@click.argument("record", nargs=-1, required=True, metavar="ID VERSION_ID")
@opt.json_option
def restore(session: Session, kind: str, record: tuple[str, ...]) -> None:
    """Make the version VERSION_ID of the record with ID current again, also if the record was deleted."""
    *name, version_id = record
    restored = getattr(session.client, _KINDS[kind]).restore_version(*_name(kind, name), version_id)
    if session.as_json:
        echo(restored.to_json())
    elif kind == "statement":
        tell_restored(session, *name)
    else:
        echo(f"restored {' '.join(name)}")


def version_table(found: Iterable[Any]) -> RenderableType:
    """Versions, each with its text, its id, and who ended it."""
    columns = {"from": out.SHORT, "until": out.SHORT, "ended by": out.SHORT, "version": out.REST}
    rows = ([*_info(each), _lines(each)] for each in found)
    return out.record_table(columns, rows, "no earlier versions")


def _name(kind: str, given: Sequence[str]) -> list[Any]:
    """The arguments that name a record."""
    if len(given) != (2 if kind == "fact" else 1):
        raise click.UsageError("name a fact by its namespace and its key" if kind == "fact" else "name one record")
    return [opt.labels(given[0]), given[1]] if kind == "fact" else [given[0]]


def _info(version: Any) -> list[str]:
    about = version.version
    return [out.short_time(about.start_time), out.short_time(about.end_time), about.ending]


def _lines(version: Any) -> Group:
    record = next(getattr(version, name) for name in ("document", "memory", "fact") if hasattr(version, name))
    content = record.content if hasattr(record, "content") else json.dumps(dict(record.value), ensure_ascii=False)
    about = version.version
    return out.record_lines(content, about.version_id, {"by": about.principal, "method": about.method})
