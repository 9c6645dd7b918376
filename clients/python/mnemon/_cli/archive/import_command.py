"""The command that imports, and its report."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, BinaryIO

import click

from mnemon._cli.archive.files import GivenFile, files_of, opened, reading
from mnemon._cli.archive.foreign_records import ForeignImport, ForeignOptions
from mnemon._cli.archive.options import map_option
from mnemon._cli.imports.facts import ENDED, FieldMapping
from mnemon._cli.imports.forms import ARCHIVE, FORMS, NO_RECORDS, Form, form_of, mapped_by
from mnemon._cli.options import json_option, scope_options, take_over_option
from mnemon._cli.output import plain
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon._cli.session import Session
from mnemon._values import documents as values
from mnemon._values.archive import ImportConflict, ImportOutcome, ImportResult
from mnemon.shared.errors import IncompleteArchiveError
from mnemon.shared.namespaces import namespace_labels
from mnemon.shared.terminal import echo


@click.command("import")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--from", "system", type=click.Choice(list(FORMS)), help="Whose file it is; by default, its content tells."
)
@map_option
@click.option("--namespace", "template", type=namespace_labels, help="The namespace of facts, such as user.{user_id}.")
@click.option("--embeddings", is_flag=True, help="Use the vectors of facts, if the same model computed them.")
@click.option("--include-ended", is_flag=True, help="Import expired and deleted records, too.")
@click.option(
    "--on-conflict",
    type=click.Choice([each.value for each in ImportConflict]),
    help="What happens to a record whose id is in use.  [default: newer; replace for another system's export]",
)
@click.option("--embed-anew", is_flag=True, help="Compute all vectors anew with the server's model.")
@click.option("--bridge-events", is_flag=True, help="Let the bridge handle imported events as if they were new.")
@click.option("--id-prefix", default="", help="Put this before the ids of documents.")
@take_over_option
@scope_options
@json_option
def import_files(
    session: Session,
    /,
    paths: tuple[str, ...],
    *,
    system: str | None,
    mapping: FieldMapping | None,
    **given: Any,
) -> None:
    """Read files: archives, as `mnemon export` writes them, or the exports of other programs; - is standard input.

    All files of a folder are read; files of unknown form are skipped. An invalid record fails alone.
    Importing the same file again changes nothing, so simply repeat an interrupted import. Conversations become
    documents, memories become facts; the scope (--user and the others) is for documents.
    """
    if system and mapping:
        raise click.UsageError("give --from or --map, not both")
    files = files_of(paths)
    report = ImportReport(session, names_files=len(files) > 1)
    for each in files:
        with opened(each.path) as file:
            try:
                form = mapped_by(mapping) if mapping else _form(system, file, each.name)
            except ValueError as error:
                report.leave_out(each.path, error)
                continue
            _check_options(form, given)
            report.begin(each.path, form)
            total = count_lines(each.path) if form is None else 0
            with BulkProgress(session.error_console, "importing", total, quiet=session.as_json) as progress:
                report.show_all(_results(session, each, file, form, report, given), progress)
    report.show_summary()


def _form(system: str | None, file: BinaryIO, file_name: str) -> Form | None:
    """The given form of a file, or the one its content shows; None for an archive."""
    name = system or (form_of(file, file_name) if file.seekable() else ARCHIVE)
    return None if name == ARCHIVE else FORMS.get(name, NO_RECORDS)


def _results(
    session: Session,
    given_file: GivenFile,
    file: BinaryIO,
    form: Form | None,
    report: "ImportReport",
    given: Mapping[str, Any],
) -> Iterable[ImportResult]:
    if form is None:
        return session.client.archive.import_(
            reading(given_file.path, file),
            on_conflict=given["on_conflict"] or ImportConflict.NEWER,
            embed_anew=given["embed_anew"],
            bridge_events=given["bridge_events"],
        )
    chosen = {each.name: given[each.name] for each in fields(ForeignOptions)}
    options = ForeignOptions(**{**chosen, "on_conflict": given["on_conflict"] or ImportConflict.REPLACE})
    records = reading(given_file.path, form.read(file, given_file.name))
    return ForeignImport(form, given_file, options, report.left_out).run(session.client, records)


def _check_options(form: Form | None, given: Mapping[str, Any]) -> None:
    """Fails if options do not fit the form."""
    on_conflict = given["on_conflict"]
    of_documents = given["scope"] != values.Scope() or given["id_prefix"] or given["take_over"]
    of_facts = given["template"] or given["embeddings"] or given["include_ended"]
    if form is None and (of_facts or of_documents):
        raise click.UsageError(
            "--namespace, --embeddings, --include-ended, --id-prefix, --take-over and scopes belong to another system's"
            " export, not to an archive"
        )
    if form is None or form is NO_RECORDS:
        return
    if given["embed_anew"] or given["bridge_events"] or on_conflict == ImportConflict.NEWER:
        raise click.UsageError("--embed-anew, --bridge-events and --on-conflict newer are for archives alone")
    if form.has_documents and (of_facts or on_conflict not in (None, ImportConflict.REPLACE)):
        raise click.UsageError(
            f"{form.about}: its records become documents; --namespace, --embeddings, --include-ended and --on-conflict"
            " keep or refuse are for facts"
        )
    if not form.has_documents and of_documents:
        raise click.UsageError(
            f"{form.about}: its records become facts, which have no scope, --id-prefix or --take-over; use --namespace"
        )


class ImportReport:
    """Counts and shows the result of each record: sentences for people, JSON lines for programs."""

    def __init__(self, session: Session, *, names_files: bool) -> None:
        """`names_files`: name the file of each result, for imports of several files."""
        self._session, self._names_files = session, names_files
        self._counts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        """The number of skipped parts, by reason."""
        self._path, self._form = "", ""
        self._cut_off: list[str] = []
        self._is_foreign = False

    def begin(self, path: str, form: Form | None) -> None:
        """Starts a file, and names its form unless the previous file had the same."""
        self._path = path if self._names_files else ""
        about = form.about if form else ""
        if about and about != self._form:
            named = "".join(f" (--from {name})" for name, known in FORMS.items() if known is form)
            self._tell(f"reading {about}{named}")
        self._form, self._is_foreign = about, self._is_foreign or form is not None

    def leave_out(self, path: str, error: ValueError) -> None:
        """Counts a file of unknown form, which is an error if no other file is imported."""
        if not self._names_files:
            raise click.ClickException(f"{path}: {error}") from error
        self.left_out["files of no known form"] += 1
        self._is_foreign = True
        self._tell(f"left out: {path}: its form is not known")

    def show_all(self, results: Iterable[ImportResult], progress: BulkProgress) -> None:
        """Counts and shows the results of a file."""
        try:
            for result in results:
                self._show(result)
                progress.advance()
        except IncompleteArchiveError as error:
            self._cut_off.append(f"{self._path}: {error.message}" if self._path else error.message)

    def _show(self, result: ImportResult) -> None:
        self._counts["failed" if result.error else str(result.outcome)] += 1
        if self._session.as_json:
            of_file = {"path": self._path} if self._path else {}
            echo(json.dumps({**of_file, **result.to_dict()}, ensure_ascii=False))
        elif result.error:
            named = " ".join(part for part in (result.kind, result.id) if part)
            place = f"{self._path}: " if self._path else ""
            item = f", item {result.item}" if result.item else ""
            problem = _as_option(result.error.message)
            self._tell(f"failed: {place}line {result.line}{item}{f' ({named})' if named else ''}: {problem}")

    def _tell(self, text: str) -> None:
        self._session.error_console.print(plain(text), soft_wrap=True)

    def show_summary(self) -> None:
        """Prints the counts, and exits with 1 if a record failed or a file was cut off."""
        known = [each.value for each in ImportOutcome if each is not ImportOutcome.UNKNOWN]
        counts = {name: self._counts[name] for name in (*known, "failed")}
        if self._session.as_json:
            told = {"left_out": self.left_out} if self._is_foreign else {}
            echo(json.dumps({"summary": {**counts, **told, "complete": not self._cut_off}}))
        else:
            echo(_counted(counts) + (f"; left out: {_counted(self.left_out)}" if self.left_out else ""))
            if not self.left_out.keys().isdisjoint(ENDED):
                self._tell("--include-ended imports expired and deleted records, too")
        if self._cut_off:
            raise click.ClickException("; ".join(self._cut_off))
        if self._counts["failed"]:
            raise SystemExit(1)


def _as_option(message: str) -> str:
    """The message of an error with the option of this command for the field of the request."""
    return message.replace("set embed_anew", "use --embed-anew").replace("with embed_anew", "with --embed-anew")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())
