"""The commands that hide the records of a source, and show them again."""

import click

from mnemon._cli import options as opt
from mnemon._cli.output import counted_kinds, show_lines
from mnemon._cli.session import Session
from mnemon._values.quarantine import Quarantine
from mnemon.shared.terminal import echo

_ORIGIN = click.argument("origin", type=click.Choice(opt.ORIGINS))
_NAME = click.argument("origin_name", metavar="[NAME]", required=False, type=opt.visible)


@click.group()
def quarantine() -> None:
    """Hide all records from a source, such as a site, until they are released; for admins.

    ORIGIN says where they come from, NAME which tool, file or site that is. Without a NAME, it is all of them.
    """


@quarantine.command("add")
@_ORIGIN
@_NAME
@click.option("--reason", default="", help="The reason, shown in the list.")
@opt.json_option
def add(session: Session, *, origin: str, origin_name: str | None, reason: str) -> None:
    """Hide the records of a source from all callers."""
    receipt = session.client.quarantine.add(origin, origin_name or "", reason=reason)
    if session.as_json:
        echo(receipt.to_json())
        return
    since = "was in quarantine before" if receipt.existed else "is in quarantine"
    echo(f"{_source(origin, origin_name)} {since}; hidden: {counted_kinds(receipt.counts)}", is_line=True)
    if not receipt.counts:
        echo("no record has exactly this origin and name yet; new ones will be hidden", err=True)


@quarantine.command("list")
@opt.json_option
def list_quarantines(session: Session) -> None:
    """List the sources in quarantine."""
    show_lines(session, session.client.quarantine.list(), _line, "nothing is in quarantine")


@quarantine.command("release")
@_ORIGIN
@_NAME
@opt.json_option
def release(session: Session, *, origin: str, origin_name: str | None) -> None:
    """Show the records of a source again."""
    receipt = session.client.quarantine.release(origin, origin_name or "")
    said = f"{_source(origin, origin_name)} is released; shown again: {counted_kinds(receipt.counts)}"
    echo(receipt.to_json() if session.as_json else said, is_line=not session.as_json)


def _source(origin: str, origin_name: str | None) -> str:
    return f"{origin}: {origin_name}" if origin_name else f"{origin} (any name)"


def _line(each: Quarantine) -> str:
    reason = f"  {each.reason}" if each.reason else ""
    return f"{_source(each.origin, each.origin_name)}  since {each.create_time:%Y-%m-%d %H:%M} UTC{reason}"
