"""The commands that export and import."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import click

from mnemon import _archive_lines as lines
from mnemon._cli.archive.files import new_file, opened, reading, refuse_existing
from mnemon._cli.archive.foreign_records import ForeignImport, ForeignOptions
from mnemon._cli.archive.options import map_option
from mnemon._cli.imports.facts import ENDED, FieldMapping
from mnemon._cli.imports.forms import FORMS, mapped_by
from mnemon._cli.options import json_option, scope_options
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon._cli.render import plain
from mnemon._cli.session import Session
from mnemon._errors import IncompleteArchiveError
from mnemon._namespaces import namespace_labels
from mnemon._values import documents as values
from mnemon._values.archive import ImportConflict, ImportOutcome, ImportResult, RecordKind


@click.command("export")
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--kind",
    "kinds",
    type=click.Choice([each.value for each in RecordKind]),
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
@click.option("--exact", is_flag=True, help="With --facts-namespace: leave out the namespaces below it.")
@click.option("--no-vectors", is_flag=True, help="Omit the vectors; an import computes them again.")
@click.option("--force", is_flag=True, help="Replace an existing FILE.")
@scope_options
@click.pass_obj
def export_archive(
    session: Session,
    path: str,
    *,
    kinds: tuple[str, ...],
    namespace: tuple[str, ...] | None,
    exact: bool,
    no_vectors: bool,
    force: bool,
    scope: values.Scope,
) -> None:
    """Write the contents of the vault to FILE as JSON lines, including vectors; - is standard output.

    The file appears, or replaces an existing one, once it is complete, and only its owner can read it.
    """
    if not force:
        refuse_existing(path, "name another file, or give --force to replace it")
    archive = session.client.archive.export(
        kinds=kinds,
        namespace=namespace or (),
        exact_namespace=exact,
        scope=None if scope == values.Scope() else scope,
        vectors=not no_vectors,
    )
    with new_file(path) as file:
        summary = _write(session, archive, file)
    counts = [f"{count:,} {kind}" for kind, count in summary["counts"].items()]
    click.echo("exported: " + (", ".join(counts) or "nothing"), err=True)
    if removed := summary["removed_count"]:
        click.echo(f"{removed:,} records were removed meanwhile, and may be in the file; export again", err=True)


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


@click.command("import")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--from", "system", type=click.Choice(list(FORMS)), help="Read another system's export as facts.")
@map_option
@click.option(
    "--namespace", "template", type=namespace_labels, help="The namespace of those facts, such as user.{user_id}."
)
@click.option("--embeddings", is_flag=True, help="Use the vectors of that export, if the same model computed them.")
@click.option(
    "--include-ended", is_flag=True, help="Also what that system no longer counts: what has expired or was deleted."
)
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in ImportConflict]),
    help="What happens to a record whose id is in use.  [default: newer; replace for another system's export]",
)
@click.option("--embed-anew", is_flag=True, help="Compute all vectors anew with the server's model.")
@click.option("--bridge-events", is_flag=True, help="Let the bridge handle imported events as if they were new.")
@json_option
@click.pass_obj
def import_archive(
    session: Session,
    path: str,
    *,
    system: str | None,
    mapping: FieldMapping | None,
    template: tuple[str, ...] | None,
    embeddings: bool,
    include_ended: bool,
    on_conflict: str | None,
    embed_anew: bool,
    bridge_events: bool,
    as_json: bool,
) -> None:
    """Read JSON lines from FILE, as `mnemon export` writes them, or another system's export; - is standard input.

    An invalid line fails alone. Importing the same file again changes nothing, so simply repeat an interrupted import.
    """
    if system and mapping:
        raise click.UsageError("give --from or --map, not both")
    is_foreign = bool(system or mapping)
    if (template or embeddings or include_ended) and not is_foreign:
        raise click.UsageError(
            "--namespace, --embeddings and --include-ended belong to another system's export: give --from or --map"
        )
    if is_foreign and (embed_anew or bridge_events or on_conflict == ImportConflict.NEWER):
        raise click.UsageError("--embed-anew, --bridge-events and --on-conflict newer are for archives alone")
    foreign = ForeignImport(ForeignOptions(template, embeddings, include_ended, on_conflict or ImportConflict.REPLACE))
    total = 0 if is_foreign else count_lines(path)
    with BulkProgress(session.error_console, "importing", total, quiet=as_json) as progress, opened(path) as file:
        report = ImportReport(session, progress, as_json=as_json)
        if is_foreign:
            read = mapped_by(mapping) if mapping else FORMS[system or ""].read
            results: Iterable[ImportResult] = foreign.run(session.client, reading(path, read(file)))
        else:
            results = session.client.archive.import_(
                reading(path, file),
                on_conflict=on_conflict or ImportConflict.NEWER,
                embed_anew=embed_anew,
                bridge_events=bridge_events,
            )
        try:
            for result in results:
                report.show(result)
        except IncompleteArchiveError as error:
            report.cut_off = error.message
    report.show_summary(foreign.left_out if is_foreign else None)


class ImportReport:
    """Counts and shows the result of each record: sentences for people, JSON lines for programs."""

    def __init__(self, session: Session, progress: BulkProgress, *, as_json: bool) -> None:
        self._session, self._progress, self._as_json = session, progress, as_json
        self._counts: Counter[str] = Counter()
        self.cut_off = ""

    def show(self, result: ImportResult) -> None:
        """Counts and shows one."""
        self._counts["failed" if result.error else str(result.outcome)] += 1
        if self._as_json:
            click.echo(result.to_json())
        elif result.error:
            named = " ".join(part for part in (result.kind, result.id) if part)
            item = f", item {result.item}" if result.item else ""
            text = f"failed: line {result.line}{item}{f' ({named})' if named else ''}: {result.error.message}"
            self._session.error_console.print(plain(text), soft_wrap=True)
        self._progress.advance()

    def show_summary(self, left_out: Mapping[str, int] | None) -> None:
        """Prints the counts, and exits with 1 if a record failed or the file was cut off.

        `left_out` are the counts of what was left out, by reason; None for an archive.
        """
        known = [each.value for each in ImportOutcome if each is not ImportOutcome.UNKNOWN]
        counts = {name: self._counts[name] for name in (*known, "failed")}
        if self._as_json:
            told = {} if left_out is None else {"left_out": left_out}
            click.echo(json.dumps({"summary": {**counts, **told, "complete": not self.cut_off}}))
        else:
            click.echo(_counted(counts) + (f"; left out: {_counted(left_out)}" if left_out else ""))
            if left_out and not left_out.keys().isdisjoint(ENDED):
                click.echo("--include-ended imports what has expired or was deleted, too", err=True)
        if self.cut_off:
            raise click.ClickException(self.cut_off)
        if self._counts["failed"]:
            raise SystemExit(1)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())
