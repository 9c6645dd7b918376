"""The command that stores documents."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import click

from mnemon._cli.documents.sources import (
    NOT_TEXT,
    Skipped,
    SourceOptions,
    Unreadable,
    count_documents,
    find_inputs,
    read_inputs,
)
from mnemon._cli.options import json_option, meta_option, scope_options
from mnemon._cli.progress import BulkProgress
from mnemon._cli.render import plain
from mnemon._cli.session import Session
from mnemon._values import documents as values


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True), metavar="PATH...")
@click.option("--glob", "globs", multiple=True, help="Only files of folders that match; repeatable. * crosses folders.")
@click.option("--hidden", is_flag=True, help="Include files and folders whose names begin with a dot.")
@click.option("--jsonl", is_flag=True, help="Read every input as JSON lines, whatever its name.")
@click.option("--id-prefix", default="", help="Put this before every document id.")
@meta_option("document")
@scope_options
@click.option(
    "--ack",
    type=click.Choice([each.value for each in values.AckLevel]),
    default=values.AckLevel.DURABLE.value,
    show_default=True,
    help="When a document counts as stored: on disk, or also in the vector database.",
)
@click.option("--allow-skipped", is_flag=True, help="Exit with code 0 even if files that are not text were skipped.")
@click.option("--verbose", "-v", is_flag=True, help="Name every file that is skipped.")
@json_option
@click.pass_obj
def index(
    session: Session,
    paths: tuple[str, ...],
    scope: values.Scope,
    ack: str,
    *,
    allow_skipped: bool,
    verbose: bool,
    as_json: bool,
    globs: tuple[str, ...],
    hidden: bool,
    jsonl: bool,
    id_prefix: str,
    metadata: dict[str, values.MetadataValue],
) -> None:
    """Store files, folders, JSON lines and standard input (-).

    The id of a file is its path inside the given folder, or its name; with several paths, it begins with the path. A
    .jsonl file holds one document per line: {"doc_id": "...", "content": "...", "metadata": {...}}. Files that are not
    UTF-8 text, such as PDFs and pictures, are skipped and counted, and the exit code is 1.
    """
    options = SourceOptions(globs, hidden=hidden, json_lines=jsonl, id_prefix=id_prefix, metadata=metadata)
    inputs = find_inputs(paths, options)
    with _Report(session, count_documents(inputs, options), as_json=as_json, verbose=verbose) as report:
        documents = report.documents_of(read_inputs(inputs, options))
        for result in session.client.documents.put_many(documents, scope=scope, ack=ack):
            report.show(result)
    if report.counts["failed"] or (report.skipped[NOT_TEXT] and not allow_skipped):
        raise SystemExit(1)


@dataclass
class _Report:
    """Counts and shows results: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

    session: Session
    total: int
    as_json: bool
    verbose: bool
    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._progress = BulkProgress(self.session.error_console, "indexing", self.total, quiet=self.as_json)

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
                yield source
            elif isinstance(source, Skipped):
                self._skip(source)
            else:
                self._fail(source.path, {"message": source.problem}, source.problem)

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

    def _fail(self, name: str, error: dict[str, Any], message: str) -> None:
        self.counts["failed"] += 1
        self._print_json({"doc_id": name, "error": error})
        if not self.as_json:
            self.session.error_console.print(plain(f"failed: {name}: {message}"), soft_wrap=True)
        self._progress.advance()

    def _skip(self, skipped: Skipped) -> None:
        self.skipped[skipped.reason] += 1
        self._print_json({"path": skipped.path, "skipped": skipped.reason})
        if self.verbose and not self.as_json:
            self.session.error_console.print(plain(f"skipped: {skipped.path}: {skipped.reason}"), soft_wrap=True)
        self._progress.advance()

    def _print_json(self, line: dict[str, Any]) -> None:
        if self.as_json:
            click.echo(json.dumps(line, ensure_ascii=False))

    def _show_summary(self) -> None:
        counts = {name: self.counts[name] for name in ("created", "replaced", "unchanged", "failed")}
        self._print_json({"summary": {**counts, "skipped": dict(self.skipped)}})
        if self.as_json:
            return
        line = ", ".join(f"{number:,} {name}" for name, number in counts.items())
        if self.skipped:
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in self.skipped.items())
            line += f"; {self.skipped.total():,} skipped ({reasons})"
        click.echo(line)
