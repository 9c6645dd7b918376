"""The commands for documents, except for the one that stores them."""

import json
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from rich.console import RenderableType
from rich.progress import MofNCompleteColumn
from rich.text import Text

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.encodings import TEXT_FILE, content_of
from mnemon._cli.memories import status_table
from mnemon._cli.progress import show_progress
from mnemon._cli.session import Session
from mnemon._cli.unknown_users import note_unknown_user
from mnemon._values import documents as values
from mnemon._values.memories import MemoryStatus
from mnemon.shared.errors import UnimplementedError
from mnemon.shared.terminal import counted, echo

_PAUSE_S = 0.1
_FIRST_WORDS_CHARACTERS_MAX = 160
_SERVING = (values.HealthStatus.HEALTHY, values.HealthStatus.STARTING, values.HealthStatus.DEGRADED)


def _which(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the client that say which documents."""
    scope = values.Scope(**{name: given.pop(name) or "" for name in opt.SCOPE_HELP})
    found = opt.which_of(given)
    return found if scope == values.Scope() else {**found, "scope": scope}


_which_documents = opt.collected(
    "which",
    {
        "filters": opt.filter_option("documents"),
        "comparisons": opt.where_option("documents", "metadata.year>=2020, agent!=claude"),
        **{name: click.option(opt.dashed(name), help=text) for name, text in opt.SCOPE_HELP.items()},
    },
    _which,
)
_lenient_option = click.option(
    "--lenient",
    is_flag=True,
    help="Ignore a --filter whose key no document has, find nothing by another type of value, and say so; do not fail.",
)


# Commands


@click.command()
@click.argument("query", type=opt.text_or_stdin)
@opt.limit_option(5, maximum=100)
@_which_documents
@_lenient_option
@opt.mode_option
@opt.min_score_option
@opt.min_trust_option
@opt.json_option
def search(session: Session, /, query: str, which: dict[str, Any], *, lenient: bool, **how: Any) -> None:
    """Find the documents nearest to QUERY, best first."""
    with _noting_warnings():
        answer = session.client.documents.search(query, strict=not lenient, **how, **which)
    out.show_answer(session, answer, search_table)
    if not answer.results:
        _note_unknown_user(session, which)


@click.command()
@click.argument("doc_id")
@opt.json_option
def get(session: Session, doc_id: str) -> None:
    """Show the document DOC_ID."""
    out.show(session, session.client.documents.get(doc_id), document_sheet, soft_wrap=True)


@click.command("list")
@_which_documents
@_lenient_option
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def list_documents(session: Session, which: dict[str, Any], *, limit: int, lenient: bool) -> None:
    """List documents in the order in which they were first indexed."""
    with _noting_warnings():
        found = session.client.documents.list(page_size=out.page_size_of(limit), strict=not lenient, **which)
        has_any = out.show_list(session, found, document_table, limit=limit)
    if not has_any:
        _note_unknown_user(session, which)


def _note_unknown_user(session: Session, which: Mapping[str, Any]) -> None:
    scope = which.get("scope")
    note_unknown_user(session, scope.user if scope else None, "document")


@click.command()
@_which_documents
@_lenient_option
@opt.json_option
def count(session: Session, which: dict[str, Any], *, lenient: bool) -> None:
    """Count documents."""
    with _noting_warnings():
        number = session.client.documents.count(strict=not lenient, **which)
    echo(json.dumps({"count": number}) if session.as_json else f"{number}")


@click.command()
@click.argument("doc_id")
@click.option("--content", help="The new text.")
@click.option(
    "--file",
    "text",
    type=TEXT_FILE,
    callback=content_of,
    help="Take the new text from this file; - is standard input.",
)
@opt.set_option
@click.option("--unset", "remove_metadata", metavar="KEY", multiple=True, help="Metadata to remove; repeatable.")
@opt.scope_options
@opt.json_option
def update(
    session: Session, /, doc_id: str, scope: values.Scope, content: str | None, text: str | None, **metadata: Any
) -> None:
    """Change the given fields of the document DOC_ID, and keep the others."""
    parts = {name: part for name, part in scope.to_dict().items() if part}
    if content is not None and text is not None:
        raise click.UsageError("give the text with --content or with --file, not both")
    if content is None and text is None and not (parts or any(metadata.values())):
        raise click.UsageError("say what to change: --content, --file, --set, --unset or a scope such as --project")
    new = content if text is None else text
    receipt = session.client.documents.update(doc_id, content=new, scope=parts or None, **metadata)
    out.show(session, receipt, f"{receipt.outcome} {doc_id}, revision {receipt.revision}")


@click.command()
@click.argument("doc_ids", nargs=-1, metavar="[DOC_ID]...")
@_which_documents
@click.option("--dry-run", is_flag=True, help="Only count what the filter matches.")
@opt.yes_option
@opt.json_option
def delete(
    session: Session,
    doc_ids: tuple[str, ...],
    which: dict[str, Any],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove documents: those named, or all that --filter, --where and the scope match."""
    if bool(doc_ids) == bool(which):
        raise click.UsageError(
            "name documents, or say which with --filter, --where or a scope such as --project; not both"
        )
    if doc_ids and dry_run:
        raise click.UsageError("--dry-run goes with a filter or a scope; documents that are named need none")
    if doc_ids:
        _confirm(len(doc_ids), yes=yes)
        out.do_each(session, session.client.documents.delete, doc_ids, "deleted")
        return
    found = session.client.documents.delete_many(**which, dry_run=True).deleted_count
    if not yes or dry_run:
        out.note_lacking(session.client.documents.delete_many, which)
    if not dry_run and found:
        _confirm(found, yes=yes)
        found = session.client.documents.delete_many(**which).deleted_count
    if session.as_json:
        echo(json.dumps({"deleted_count": found, "dry_run": dry_run}))
    else:
        echo(f"{found:,} would be deleted" if dry_run else f"{found:,} deleted")


def _confirm(number: int, *, yes: bool) -> None:
    if not yes:
        click.confirm(f"Delete {counted(number, 'document')}?", abort=True, err=True)


@click.command("rebuild-index")
@opt.json_option
def rebuild_index(session: Session) -> None:
    """Rebuild the vector database from the records."""
    last = show_progress(
        session,
        "rebuilding",
        session.client.documents.rebuild_index(),
        lambda progress: (progress.done, progress.total),
        MofNCompleteColumn(),
        said=lambda number: f"{number:,}",
    )
    if not session.as_json:
        echo(f"rebuilt the index of {counted(last.done if last else 0, 'document')}")


@click.command()
@opt.json_option
def health(session: Session) -> None:
    """Show the health of the server; exit code 1 if documents or memories are unhealthy.

    With --wait, which comes before the command, also if they are still starting after that time.
    """
    store, memories = session.client.documents.status(), _memory_status(session)
    while (is_starting := _is_starting(store, memories)) and session.wait_left_s:
        time.sleep(_PAUSE_S)
        store, memories = session.client.documents.status(), _memory_status(session)
    if session.as_json:
        echo(json.dumps({**store.to_dict(), "memories": memories and memories.to_dict()}, ensure_ascii=False))
    else:
        session.console.print(health_table(store))
        if memories:
            session.console.print(Text(), status_table(memories))
    if store.status not in _SERVING or (memories and memories.status not in _SERVING):
        raise SystemExit(1)
    if is_starting and session.is_waiting:
        out.note("it is still starting; --wait says for how many seconds to wait")
        raise SystemExit(1)


@contextmanager
def _noting_warnings() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for each in caught:
        out.note(str(each.message))


def _is_starting(store: values.StoreHealth, memories: MemoryStatus | None) -> bool:
    return values.HealthStatus.STARTING in (store.status, memories and memories.status)


def _memory_status(session: Session) -> MemoryStatus | None:
    try:
        return session.client.memories.status()
    except UnimplementedError:
        # An older server without memories is healthy without them.
        return None


# Tables


def search_table(answer: values.SearchAnswer) -> RenderableType:
    """The results of a search, each with the passage that matched."""
    columns = {"score": out.NUMBER, "document": {"overflow": "fold", "max_width": 40}, "passage": {"ratio": 1}}
    return out.record_table(
        columns, ([out.score(hit.score), hit.doc_id, out.one_line(hit.passage_text)] for hit in answer)
    )


def document_table(documents: Iterable[values.Document]) -> RenderableType:
    """Documents, each with its first words."""
    columns = {"document": out.FOLDED, "revision": out.NUMBER, "updated": out.SHORT, "content": {"ratio": 1}}
    rows = (
        [
            each.doc_id,
            str(each.revision),
            out.short_time(each.update_time),
            out.one_line(each.content, _FIRST_WORDS_CHARACTERS_MAX),
        ]
        for each in documents
    )
    return out.record_table(columns, rows, "no documents")


def document_sheet(document: values.Document) -> RenderableType:
    """One document: its fields, then its text."""
    fields = {
        "document": document.doc_id,
        "revision": document.revision,
        "created": out.short_time(document.create_time),
        "updated": out.short_time(document.update_time),
        "passages": document.passage_count,
        **document.scope.to_dict(),
    }
    return out.record_sheet(fields, document.metadata, document.content)


def _latency(health: values.StoreHealth) -> str:
    """The response time of the vector database; empty for the local index, which is a part of the server."""
    if health.latency_s is not None:
        return f"{health.latency_s * 1000:.1f} ms"
    return "no answer" if health.host else ""


def health_table(health: values.StoreHealth) -> RenderableType:
    """The health of the store."""
    model = health.embedding_model
    return out.field_table(
        {
            "status": health.status,
            "message": health.message,
            "backend": " ".join(part for part in (health.backend, health.host, health.collection) if part),
            "model": f"{model.name} {model.precision}, {model.dimension} dimensions",
            "documents": health.document_count,
            "passages": health.passage_count,
            "pending": health.pending,
            "being removed": out.removals(health.removal_pending_count, health.removal_out_of_reach_count),
            "latency": _latency(health),
        }
    )
