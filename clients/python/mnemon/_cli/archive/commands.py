"""The command that exports."""

import json
import sys
from typing import Any, TextIO

import click

from mnemon import _archive_lines as lines
from mnemon._cli.archive.files import new_file, refuse_existing
from mnemon._cli.options import choice_of, given_of, scope_options
from mnemon._cli.output import counted_kinds
from mnemon._cli.progress import BulkProgress
from mnemon._cli.session import Session
from mnemon._values import documents as values
from mnemon._values.archive import RecordKind
from mnemon.shared.namespaces import namespace_labels
from mnemon.shared.terminal import echo


@click.command("export")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--kind",
    "kinds",
    type=choice_of(RecordKind),
    multiple=True,
    help="Only records of this kind; repeatable.",
)
@click.option(
    "--facts-namespace",
    "namespace",
    type=namespace_labels,
    default=None,
    help="Only facts of this namespace and those below it, such as user.ada.",
)
@click.option(
    "--exact", "exact_namespace", is_flag=True, help="With --facts-namespace: leave out the namespaces below it."
)
@click.option("--no-vectors", is_flag=True, help="Omit the vectors; an import computes them again.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@scope_options
@click.pass_obj
def export_archive(
    session: Session, /, path: str, *, no_vectors: bool, force: bool, scope: values.Scope, **selection: Any
) -> None:
    """Write the contents of the vault to FILE as JSON lines, including vectors; - is standard output.

    The file appears, or replaces an existing one, once it is complete, and only its owner can read it.
    """
    if not force:
        refuse_existing(path, "name another file, or give --force to replace it")
    owner = None if scope == values.Scope() else scope
    archive = session.client.archive.export(scope=owner, vectors=not no_vectors, **given_of(selection))
    with new_file(path) as file:
        summary = _write(session, archive, file)
    echo(f"exported: {counted_kinds(summary['counts'])}", err=True)
    if removed := summary["removed_count"]:
        echo(f"{removed:,} records were removed meanwhile, and may be in the file; export again", err=True)


def _write(session: Session, archive: Any, file: TextIO) -> dict[str, Any]:
    """Writes the lines, and returns the summary."""
    header = next(archive)
    summary: dict[str, Any] = {}
    total = sum(header["counts"].values())
    with BulkProgress(session.error_console, "exporting", total, quiet=not sys.stderr.isatty()) as progress:
        _write_line(file, header)
        for line in archive:
            _write_line(file, line)
            if lines.is_summary(line):
                summary = line[lines.SUMMARY]
            else:
                progress.advance()
    if not summary:
        raise click.ClickException("the server ended the export early; export again")
    return summary


def _write_line(file: TextIO, line: dict[str, Any]) -> None:
    file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
