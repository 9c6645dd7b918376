"""The commands that export and import."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click

from mnemon import _archive_lines as lines
from mnemon._cli.archive.files import new_file, opened, reading, refuse_existing
from mnemon._cli.archive.foreign_records import ForeignImport, ForeignOptions
from mnemon._cli.archive.options import map_option
from mnemon._cli.documents.sources import STDIN
from mnemon._cli.imports.facts import ENDED, FieldMapping
from mnemon._cli.imports.forms import ARCHIVE, FORMS, Form, form_of, mapped_by
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
@click.option(
    "--from", "system", type=click.Choice(list(FORMS)), help="Whose file it is; by default, its content tells."
)
@map_option
@click.option("--namespace", "template", type=namespace_labels, help="The namespace of facts, such as user.{user_id}.")
@click.option("--embeddings", is_flag=True, help="Use the vectors of facts, if the same model computed them.")
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
@scope_options
@json_option
@click.pass_obj
def import_archive(
    session: Session,
    /,
    path: str,
    *,
    system: str | None,
    mapping: FieldMapping | None,
    on_conflict: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Read FILE: an archive, as `mnemon export` writes it, or the export of another program; - is standard input.

    A record that is invalid fails alone. Importing the same file again changes nothing, so simply repeat an interrupted
    import. Conversations become documents, memories become facts; the scope (--user and the others) is for documents.
    """
    if system and mapping:
        raise click.UsageError("give --from or --map, not both")
    with opened(path) as file:
        form = mapped_by(mapping) if mapping else _form(session, path, system, file)
        _check_options(form, on_conflict, given)
        total = count_lines(path) if form is None else 0
        with BulkProgress(session.error_console, "importing", total, quiet=as_json) as progress:
            report = ImportReport(session, progress, as_json=as_json)
            if form is None:
                report.show_all(
                    session.client.archive.import_(
                        reading(path, file),
                        on_conflict=on_conflict or ImportConflict.NEWER,
                        embed_anew=given["embed_anew"],
                        bridge_events=given["bridge_events"],
                    )
                )
            else:
                options = ForeignOptions(
                    on_conflict or ImportConflict.REPLACE,
                    given["include_ended"],
                    given["template"],
                    given["embeddings"],
                    given["scope"],
                )
                foreign = ForeignImport(form, options)
                report.left_out = foreign.left_out
                report.show_all(
                    foreign.run(
                        session.client, reading(path, form.read(file, "stdin" if path == STDIN else Path(path).name))
                    )
                )
    report.show_summary()


def _form(session: Session, path: str, system: str | None, file: BinaryIO) -> Form | None:
    """The form of a file, which its content tells unless it is given; None for an archive."""
    if system:
        return FORMS[system]
    try:
        name = form_of(file) if file.seekable() else ARCHIVE
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from error
    if name == ARCHIVE:
        return None
    session.error_console.print(plain(f"reading {FORMS[name].about} (--from {name})"), soft_wrap=True)
    return FORMS[name]


def _check_options(form: Form | None, on_conflict: str | None, given: Mapping[str, Any]) -> None:
    """Fails if options do not fit the form."""
    has_scope = given["scope"] != values.Scope()
    of_facts = given["template"] or given["embeddings"] or given["include_ended"]
    if form is None and (of_facts or has_scope):
        raise click.UsageError(
            "--namespace, --embeddings, --include-ended and scopes belong to another system's export, not to an archive"
        )
    if form is None:
        return
    if given["embed_anew"] or given["bridge_events"] or on_conflict == ImportConflict.NEWER:
        raise click.UsageError("--embed-anew, --bridge-events and --on-conflict newer are for archives alone")
    if form.has_documents and (of_facts or on_conflict not in (None, ImportConflict.REPLACE)):
        raise click.UsageError(
            f"{form.about}: its records become documents; --namespace, --embeddings, --include-ended and --on-conflict"
            " keep or refuse are for facts"
        )
    if not form.has_documents and has_scope:
        raise click.UsageError(f"{form.about}: its records become facts, which have no scope; give --namespace")


class ImportReport:
    """Counts and shows the result of each record: sentences for people, JSON lines for programs."""

    def __init__(self, session: Session, progress: BulkProgress, *, as_json: bool) -> None:
        self._session, self._progress, self._as_json = session, progress, as_json
        self._counts: Counter[str] = Counter()
        self._cut_off = ""
        self.left_out: Mapping[str, int] | None = None
        """The counts of what is left out, by reason; None for an archive."""

    def show_all(self, results: Iterable[ImportResult]) -> None:
        """Counts and shows the results."""
        try:
            for result in results:
                self._show(result)
        except IncompleteArchiveError as error:
            self._cut_off = error.message

    def _show(self, result: ImportResult) -> None:
        self._counts["failed" if result.error else str(result.outcome)] += 1
        if self._as_json:
            click.echo(result.to_json())
        elif result.error:
            named = " ".join(part for part in (result.kind, result.id) if part)
            item = f", item {result.item}" if result.item else ""
            text = f"failed: line {result.line}{item}{f' ({named})' if named else ''}: {result.error.message}"
            self._session.error_console.print(plain(text), soft_wrap=True)
        self._progress.advance()

    def show_summary(self) -> None:
        """Prints the counts, and exits with 1 if a record failed or the file was cut off."""
        known = [each.value for each in ImportOutcome if each is not ImportOutcome.UNKNOWN]
        counts = {name: self._counts[name] for name in (*known, "failed")}
        if self._as_json:
            told = {} if self.left_out is None else {"left_out": self.left_out}
            click.echo(json.dumps({"summary": {**counts, **told, "complete": not self._cut_off}}))
        else:
            click.echo(_counted(counts) + (f"; left out: {_counted(self.left_out)}" if self.left_out else ""))
            if self.left_out and not self.left_out.keys().isdisjoint(ENDED):
                click.echo("--include-ended imports what has expired or was deleted, too", err=True)
        if self._cut_off:
            raise click.ClickException(self._cut_off)
        if self._counts["failed"]:
            raise SystemExit(1)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())
