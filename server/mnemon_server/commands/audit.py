"""The commands `mnemon-server audit`, which check and show the audit log of a data folder."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from mnemon.shared.terminal import echo

from mnemon_server.commands.data_folder import DataFolder, data_dir_option
from mnemon_server.commands.errors import explained


@click.group()
def audit() -> None:
    """Check and show the audit log. A server may be running."""


@audit.command()
@data_dir_option
def verify(data_dir: Path | None) -> None:
    """Check that no entry was changed, removed or added.

    The exit code is 1 if one was, and 2 if that cannot be told.
    """
    from mnemon_server.engines.audit_file import verify_audit

    with explained(2):
        report = verify_audit(DataFolder(data_dir).path)
    for problem in report.problems:
        echo(problem)
    echo(f"{report.line_count:,} entries; {'something' if report.problems else 'nothing'} was changed")
    sys.exit(1 if report.problems else 0)


@audit.command()
@click.option("--tenant", help="Only entries of this tenant.")
@click.option(
    "--subject",
    help="Only entries of this caller, such as key:1f3a5c7e9b0d2f46 or jwt:corp:ada; whoami shows one's own.",
)
@click.option("--method", help="Only entries whose method contains this text.")
@click.option("--since", type=click.DateTime(), help="Only entries from this time on, in UTC.")
@click.option("--record", help="Only entries that name this id; needs --tenant.")
@data_dir_option
def show(
    tenant: str | None,
    subject: str | None,
    method: str | None,
    since: datetime | None,
    record: str | None,
    data_dir: Path | None,
) -> None:
    """Print entries as lines of JSON, oldest first."""
    from mnemon_server.engines.audit_file import audit_hash, caller_names, read_audit

    if record is not None and tenant is None:
        raise click.UsageError("--record needs --tenant: the same id in two tenants is that of two records")
    with explained(2):
        folder = DataFolder(data_dir).path
        callers = {subject, caller_names(folder)(subject)} if subject is not None else set()
        named = audit_hash(folder, tenant or "", record) if record is not None else None
        count = 0
        for entry in read_audit(folder):
            if (
                (tenant is None or entry.get("tenant", "") == tenant)
                and (subject is None or entry.get("subject") in callers)
                and (method is None or method in entry.get("method", ""))
                and (since is None or datetime.fromisoformat(entry["time"]) >= since.replace(tzinfo=UTC))
                and (named is None or named in entry.get("records", ()))
            ):
                echo(json.dumps(entry))
                count += 1
    if not count:
        echo("no entry matches", err=True)
        if subject is not None:
            echo(
                "a subject is that of a caller, as `mnemon whoami` shows it, and is compared as a whole: key:ID, "
                "jwt:ISSUER:SUBJECT or mtls:NAME; the users of records are not in the log",
                err=True,
            )
