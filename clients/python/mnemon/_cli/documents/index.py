"""The command that stores documents."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

from mnemon._cli.documents.gone import Indexed, remove_unchanged
from mnemon._cli.documents.others import stored_scope, without_those_of_others
from mnemon._cli.documents.sources import (
    NOT_TEXT,
    STDIN_SOURCE,
    Skipped,
    SourceOptions,
    Unreadable,
    count_documents,
    find_inputs,
    folder_name,
    read_inputs,
)
from mnemon._cli.options import STDIN, ack_option, json_option, meta_option, scope_options, take_over_option
from mnemon._cli.output import note, plain
from mnemon._cli.progress import BulkProgress
from mnemon._cli.session import Session
from mnemon._values import documents as values
from mnemon.shared.terminal import echo


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True), metavar="PATH...")
@click.option("--glob", "globs", multiple=True, help="Only files of folders that match; repeatable. * crosses folders.")
@click.option("--hidden", is_flag=True, help="Include files and folders whose names begin with a dot.")
@click.option("--no-ignore", is_flag=True, help="Include the files and folders of .gitignore.")
@click.option("--prune", is_flag=True, help="Remove the documents of files that are gone from the folders.")
@click.option("--jsonl", "json_lines", is_flag=True, help="Read every input as JSON lines, regardless of its name.")
@click.option(
    "--id",
    "stdin_id",
    default="",
    help="The document id of standard input.  [default: one that follows from its content]",
)
@click.option("--id-prefix", default="", help="Put this before every document id.")
@take_over_option
@meta_option("document")
@scope_options
@ack_option("document")
@click.option("--allow-skipped", is_flag=True, help="Exit with code 0 even if files that are not text were skipped.")
@click.option("--verbose", "-v", is_flag=True, help="Name every file that is skipped.")
@json_option
def index(
    session: Session,
    /,
    paths: tuple[str, ...],
    scope: values.Scope,
    ack: str,
    *,
    allow_skipped: bool,
    verbose: bool,
    no_ignore: bool,
    prune: bool,
    take_over: bool,
    **given: Any,
) -> None:
    """Store files, folders, JSON lines and standard input (-).

    The id of a file is its path inside the given folder, or its name; with several paths, it begins with the path.
    Standard input has the id of --id, or one that follows from its content: another text is another document. A
    .jsonl file holds one document per line: {"doc_id": "...", "content": "...", "metadata": {...}}. Files that are no
    text, such as PDFs and pictures, are skipped and counted, and the exit code is 1. Documents of files that are
    gone from a folder since it was indexed are named, and removed with --prune.
    """
    options = SourceOptions(gitignore=not no_ignore, **given)
    if options.stdin_id and (STDIN not in paths or options.json_lines):
        raise click.UsageError("--id names the document of standard input: give it with - and without --jsonl")
    inputs = find_inputs(paths, options)
    store, own_scope = session.client.documents, stored_scope(scope, session.client.who_am_i())
    with _Report(session, count_documents(inputs, options), verbose=verbose) as report:
        documents = report.documents_of(read_inputs(inputs, options))
        if not take_over:
            documents = without_those_of_others(session.client, documents, lambda each: each, scope, report.refuse)
        for result in store.put_many(documents, scope=scope, ack=ack):
            report.show(result)
        for folder in dict.fromkeys(folder_name(Path(path)) for path in paths if Path(path).is_dir()):
            report.show_gone(folder, report.indexed.gone(store, folder, options, own_scope), prune=prune)
    if report.counts["failed"] or report.counts["kept"] or (report.skipped[NOT_TEXT] and not allow_skipped):
        raise SystemExit(1)


@dataclass
class _Report:
    """Counts and shows results: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

    session: Session
    total: int
    verbose: bool
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    indexed: Indexed = field(default_factory=Indexed)

    def __post_init__(self) -> None:
        self._progress = BulkProgress(self.session.error_console, "indexing", self.total, quiet=self.session.as_json)

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.__exit__(exc_type, exc, traceback)
        self._show_summary()

    def documents_of(self, sources: Iterable[values.Document | Skipped | Unreadable]) -> Iterator[values.Document]:
        """The documents among the sources; other sources are counted here."""
        for source in sources:
            if isinstance(source, values.Document):
                if source.metadata.get("source") == STDIN_SOURCE and not self.session.as_json:
                    note(f"standard input is the document {source.doc_id}")
                self.indexed.add(source)
                yield source
            elif isinstance(source, Skipped):
                self._skip(source)
            else:
                self.indexed.unread = self.indexed.unread or source.path
                self._fail(source.path, {"message": source.problem}, source.problem)

    def refuse(self, document: values.Document, problem: str) -> None:
        """Counts and shows a document that is not stored."""
        self._fail(document.doc_id, {"message": problem}, problem)

    def show(self, result: values.IndexResult) -> None:
        """Counts and shows the result of one document."""
        if result.error is not None:
            self._fail(result.doc_id, result.error.to_dict(), result.error.message)
        elif result.receipt is not None:
            self.counts[result.receipt.outcome] += 1
            self._print_json(
                {"doc_id": result.doc_id, "outcome": result.receipt.outcome, "revision": result.receipt.revision}
            )
            self._progress.advance()

    def show_gone(self, folder: str, gone: Iterable[values.Document], *, prune: bool) -> None:
        """Names the documents whose files are gone, and removes them if requested and beyond doubt."""
        doubt = self._doubt(folder) if prune else ""
        for document in gone:
            is_removed = prune and not doubt and remove_unchanged(self.session.client.documents, document)
            outcome = "pruned" if is_removed else "gone"
            self.counts[outcome] += 1
            self._print_json({"doc_id": document.doc_id, "outcome": outcome})
            if not self.session.as_json:
                self.session.error_console.print(plain(f"{outcome}: {document.doc_id}"), soft_wrap=True)
        if doubt and self.counts["gone"]:
            self.counts["kept"] += 1
            echo(f"{folder}: {doubt}", err=True)

    def _doubt(self, folder: str) -> str:
        """A reason why a file may only seem to be gone, such as a disk that is not mounted."""
        if self.indexed.unread:
            advice = "leave out a file that holds no documents with --glob or .gitignore"
            return f"{self.indexed.unread} could not be read, so that nothing was removed; {advice}"
        return "" if self.indexed.has_files_of(folder) else "no text was found in it, so that nothing was removed"

    def _fail(self, name: str, error: dict[str, Any], message: str) -> None:
        self.counts["failed"] += 1
        self._print_json({"doc_id": name, "error": error})
        if not self.session.as_json:
            self.session.error_console.print(plain(f"failed: {name}: {message}"), soft_wrap=True)
        self._progress.advance()

    def _skip(self, skipped: Skipped) -> None:
        self.skipped[skipped.reason] += 1
        self._print_json({"path": skipped.path, "skipped": skipped.reason})
        if self.verbose and not self.session.as_json:
            self.session.error_console.print(plain(f"skipped: {skipped.path}: {skipped.reason}"), soft_wrap=True)
        self._progress.advance()

    def _print_json(self, line: dict[str, Any]) -> None:
        if self.session.as_json:
            echo(json.dumps(line, ensure_ascii=False))

    def _show_summary(self) -> None:
        counts = {name: self.counts[name] for name in ("created", "replaced", "unchanged", "failed")}
        gone = {name: self.counts[name] for name in ("gone", "pruned")}
        self._print_json({"summary": {**counts, **gone, "skipped": dict(self.skipped)}})
        if self.session.as_json:
            return
        line = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        if self.skipped:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in self.skipped.items())
            line += f"; {self.skipped.total():,} skipped ({reasons})"
        line += "".join(f"; {number:,} {name}" for name, number in gone.items() if number)
        if gone["gone"] and not self.counts["kept"]:
            line += ", which --prune removes"
        echo(line)
