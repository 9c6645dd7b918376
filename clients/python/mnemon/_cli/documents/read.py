"""The commands that change nothing."""

import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import click
from rich.text import Text

from mnemon._cli import render
from mnemon._cli.documents.options import lenient_option, which_options
from mnemon._cli.memories.render import status_table
from mnemon._cli.options import json_option, limit_option, mode_option
from mnemon._cli.session import Session
from mnemon._errors import UnimplementedError
from mnemon._terminal import echo
from mnemon._values import documents as values
from mnemon._values.memories import MemoryStatus

LIST_LIMIT = 100
_PAGE_SIZE_MAX = 1000
_PAUSE_S = 0.1


@click.command()
@click.argument("query")
@limit_option(5, maximum=100)
@which_options
@lenient_option
@mode_option
@click.option("--min-score", type=click.FloatRange(0, 1), default=0.0, help="Leave out results below this score.")
@json_option
@click.pass_obj
def search(
    session: Session,
    query: str,
    which: dict[str, Any],
    mode: str,
    *,
    limit: int,
    min_score: float,
    lenient: bool,
    as_json: bool,
) -> None:
    """Find the documents nearest to QUERY, best first."""
    with _noting_warnings():
        answer = session.client.documents.search(
            query, limit=limit, mode=mode, min_score=min_score, strict=not lenient, **which
        )
    note_cut(truncated=answer.truncated)
    if as_json:
        echo(answer.to_json())
        return
    note_relevance(answer)
    if answer.diagnostics.degraded:
        note([f"the vector database was not asked: {answer.diagnostics.degraded}; the answer is complete"])
    session.console.print(render.search_table(answer))


@click.command()
@click.argument("doc_id")
@json_option
@click.pass_obj
def get(session: Session, doc_id: str, *, as_json: bool) -> None:
    """Show the document DOC_ID."""
    document = session.client.documents.get(doc_id)
    if as_json:
        echo(document.to_json())
    else:
        session.console.print(render.document_sheet(document), soft_wrap=True)


@click.command("list")
@which_options
@lenient_option
@limit_option(LIST_LIMIT)
@json_option
@click.pass_obj
def list_documents(session: Session, which: dict[str, Any], *, limit: int, lenient: bool, as_json: bool) -> None:
    """List documents in the order in which they were first indexed."""
    with _noting_warnings():
        found = session.client.documents.list(page_size=page_size_of(limit), strict=not lenient, **which)
        if as_json:
            for document in islice(found, limit or None):
                echo(document.to_json())
        else:
            session.console.print(render.document_table(islice(found, limit or None)))
        more = limit > 0 and next(found, None) is not None
    if more:
        note([f"there are more; the first {limit:,} are shown, and --limit 0 shows all"])


@click.command()
@which_options
@lenient_option
@json_option
@click.pass_obj
def count(session: Session, which: dict[str, Any], *, lenient: bool, as_json: bool) -> None:
    """Count documents."""
    with _noting_warnings():
        number = session.client.documents.count(strict=not lenient, **which)
    echo(json.dumps({"count": number}) if as_json else f"{number}")


@click.command()
@json_option
@click.pass_obj
def health(session: Session, *, as_json: bool) -> None:
    """Show the health of the server; exit code 1 if documents or memories are unhealthy.

    With --wait, which comes before the command, also if they are still starting after that time.
    """
    store, memories = session.client.documents.status(), _memory_status(session)
    while (is_starting := _is_starting(store, memories)) and session.wait_left_s:
        time.sleep(_PAUSE_S)
        store, memories = session.client.documents.status(), _memory_status(session)
    if as_json:
        echo(json.dumps({**store.to_dict(), "memories": memories and memories.to_dict()}, ensure_ascii=False))
    else:
        session.console.print(render.health_table(store))
        if memories:
            session.console.print(Text(), status_table(memories))
    serving = (values.HealthStatus.HEALTHY, values.HealthStatus.STARTING, values.HealthStatus.DEGRADED)
    if store.status not in serving or (memories and memories.status not in serving):
        raise SystemExit(1)
    if is_starting and session.is_waiting:
        note(["it is still starting; --wait says for how many seconds to wait"])
        raise SystemExit(1)


@contextmanager
def _noting_warnings() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    note([str(each.message) for each in caught])


def _is_starting(store: values.StoreHealth, memories: MemoryStatus | None) -> bool:
    return values.HealthStatus.STARTING in (store.status, memories and memories.status)


def _memory_status(session: Session) -> MemoryStatus | None:
    try:
        return session.client.memories.status()
    except UnimplementedError:
        # An older server without memories is healthy without them.
        return None


def page_size_of(limit: int) -> int:
    """The page size for a list of this many, 0 for all: one more shows whether there are more."""
    return min(limit + 1, _PAGE_SIZE_MAX) if limit else _PAGE_SIZE_MAX


def note_more(limit: int, following: object) -> None:
    """Prints that a list was cut, if something follows."""
    if following is not None:
        note([f"there are more; the first {limit:,} are shown, and --limit 0 shows all"])


def note_cut(*, truncated: bool) -> None:
    """Prints that an answer ended because of its size."""
    if truncated:
        note(["more was found than one answer holds, which is 3 MiB; ask for less of it, or more precisely"])


def note_relevance(answer: values.RelevanceOfBest) -> None:
    """Prints that a search found nothing that is likely to have to do with its query."""
    if answer.nothing_relevant and answer.best_relevance:
        note([f"nothing relevant (best {answer.best_relevance:.2f})"])


def note(lines: list[str]) -> None:
    """Prints notes about an answer to standard error."""
    for line in lines:
        echo(f"note: {line}", err=True)
