"""The commands that find and list statements and decisions, and take decisions back."""

from itertools import islice
from typing import Any

import click

from mnemon._cli.documents.read import LIST_LIMIT, note, note_cut, note_more, note_relevance, page_size_of
from mnemon._cli.options import json_option, limit_option, mode_option
from mnemon._cli.semantic import render as statement_render
from mnemon._cli.semantic.options import which_statements_options
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values.documents import SearchMode


@click.command()
@click.argument("query")
@limit_option(3, maximum=100)
@mode_option
@click.option(
    "--min-similarity",
    type=click.FloatRange(0, 1),
    help="Leave out results below this similarity.  [default: 0.7 with --mode vector]",
)
@which_statements_options
@json_option
@click.pass_obj
def similar(
    session: Session,
    query: str,
    *,
    limit: int,
    mode: str,
    min_similarity: float | None,
    which: dict[str, Any],
    as_json: bool,
) -> None:
    """Find the statements that match QUERY best."""
    if min_similarity is not None and mode == SearchMode.KEYWORD:
        raise click.UsageError("--min-similarity compares meaning, so it does not go with --mode keyword")
    answer = session.client.semantic.search(query, limit=limit, mode=mode, min_similarity=min_similarity, **which)
    note_cut(truncated=answer.truncated)
    if as_json:
        echo(answer.to_json())
        return
    note_relevance(answer)
    session.console.print(statement_render.similarity_table(answer))
    below = answer.diagnostics.filtered_by_threshold
    if below and (min_similarity is not None or mode == SearchMode.VECTOR):
        note([f"below the least similarity: {below:,}"])


@click.command()
@click.argument("memory_id", required=False)
@which_statements_options
@click.option(
    "--superseded", "show_superseded", is_flag=True, help="Include statements that were merged or superseded."
)
@limit_option(LIST_LIMIT)
@json_option
@click.pass_obj
def known(
    session: Session,
    memory_id: str | None,
    *,
    which: dict[str, Any],
    show_superseded: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List statements in the order in which they were saved, or show the one with MEMORY_ID."""
    if memory_id is not None:
        if which or show_superseded:
            raise click.UsageError("name one statement, or say which ones with options; not both")
        memory = session.client.semantic.get(memory_id)
        if as_json:
            echo(memory.to_json())
        else:
            session.console.print(statement_render.statement_sheet(memory), soft_wrap=True)
        return
    found = session.client.semantic.list(page_size=page_size_of(limit), show_superseded=show_superseded, **which)
    if as_json:
        for each in islice(found, limit or None):
            echo(each.to_json())
    else:
        session.console.print(statement_render.statement_table(islice(found, limit or None)))
    note_more(limit, next(found, None) if limit else None)


@click.command()
@click.option("--user", default="", help="Only decisions of this user.")
@click.option("--memory", "memory_id", default="", metavar="MEMORY_ID", help="Only decisions about this statement.")
@limit_option(LIST_LIMIT)
@json_option
@click.pass_obj
def decisions(session: Session, user: str, memory_id: str, *, limit: int, as_json: bool) -> None:
    """List decisions between statements and their reasons, newest first."""
    found = session.client.conflicts.list_decisions(user=user, memory_id=memory_id, page_size=page_size_of(limit))
    if as_json:
        for each in islice(found, limit or None):
            echo(each.to_json())
    else:
        session.console.print(statement_render.decision_table(islice(found, limit or None)))
    note_more(limit, next(found, None) if limit else None)


@click.command()
@click.argument("decision_id", required=False)
@click.option("--memory", "memory_id", metavar="MEMORY_ID", help="The decision that made this merged statement.")
@json_option
@click.pass_obj
def unmerge(session: Session, decision_id: str | None, memory_id: str | None, *, as_json: bool) -> None:
    """Undo DECISION_ID: restore what it superseded, and remove the merged statement."""
    if bool(decision_id) == bool(memory_id):
        raise click.UsageError("name a decision, or a merged statement with --memory; `mnemon decisions` lists them")
    answer = session.client.conflicts.unmerge(decision_id or "", memory_id=memory_id or "")
    if as_json:
        echo(answer.to_json())
        return
    for restored_id in (*(memory.memory_id for memory in answer.restored), *answer.remaining_ids):
        echo(f"restored {restored_id}")
    if answer.removed_id:
        echo(f"removed {answer.removed_id}")


@click.command("index-status")
@json_option
@click.pass_obj
def index_status(session: Session, *, as_json: bool) -> None:
    """Show the state of the index of statements, and whether the server limits writes."""
    status = session.client.semantic.status()
    if as_json:
        echo(status.to_json())
    else:
        session.console.print(statement_render.index_table(status))
