"""The commands that find and list statements and decisions, and take decisions back."""

from itertools import islice
from typing import Any

import click

from mnemon._cli.documents.read import LIST_LIMIT, note, note_more, page_size_of
from mnemon._cli.options import json_option
from mnemon._cli.semantic import render as statement_render
from mnemon._cli.semantic.options import which_statements_options
from mnemon._cli.session import Session


@click.command()
@click.argument("query")
@click.option("--top-k", "-k", type=int, default=3, show_default=True, help="Most results to show, at most 100.")
@click.option(
    "--min-similarity",
    type=click.FloatRange(0, 1),
    default=0.7,
    show_default=True,
    help="Leave out results below this similarity.",
)
@which_statements_options
@json_option
@click.pass_obj
def similar(
    session: Session, query: str, *, top_k: int, min_similarity: float, which: dict[str, Any], as_json: bool
) -> None:
    """Find the statements nearest to QUERY by meaning, most similar first."""
    answer = session.client.search_similar(query, top_k=top_k, min_similarity=min_similarity, **which)
    if as_json:
        click.echo(answer.to_json())
        return
    session.console.print(statement_render.similarity_table(answer))
    said = answer.diagnostics
    if not answer and said.filtered_by_threshold:
        note(
            [f"{said.filtered_by_threshold:,} are less similar than {min_similarity:g}; --min-similarity says how much"]
        )


@click.command()
@click.argument("memory_id", required=False)
@which_statements_options
@click.option("--superseded", "show_superseded", is_flag=True, help="Also those that were merged or gave way.")
@click.option("--limit", type=click.IntRange(min=0), default=LIST_LIMIT, show_default=True, help="0 for all.")
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
    """List statements in the order in which they were saved, or show the one that has MEMORY_ID."""
    if memory_id is not None:
        if which or show_superseded:
            raise click.UsageError("name one statement, or say which ones with options; not both")
        memory = session.client.get_semantic(memory_id)
        if as_json:
            click.echo(memory.to_json())
        else:
            session.console.print(statement_render.statement_sheet(memory), soft_wrap=True)
        return
    found = session.client.list_semantic(page_size=page_size_of(limit), show_superseded=show_superseded, **which)
    if as_json:
        for each in islice(found, limit or None):
            click.echo(each.to_json())
    else:
        session.console.print(statement_render.statement_table(islice(found, limit or None)))
    note_more(limit, next(found, None) if limit else None)


@click.command()
@click.option("--user", default="", help="Only of this user.")
@click.option("--memory", "memory_id", default="", metavar="MEMORY_ID", help="Only about this statement.")
@click.option("--limit", type=click.IntRange(min=0), default=LIST_LIMIT, show_default=True, help="0 for all.")
@json_option
@click.pass_obj
def decisions(session: Session, user: str, memory_id: str, *, limit: int, as_json: bool) -> None:
    """List what was decided between statements, newest first, and why."""
    found = session.client.list_decisions(user=user, memory_id=memory_id, page_size=page_size_of(limit))
    if as_json:
        for each in islice(found, limit or None):
            click.echo(each.to_json())
    else:
        session.console.print(statement_render.decision_table(islice(found, limit or None)))
    note_more(limit, next(found, None) if limit else None)


@click.command()
@click.argument("decision_id", required=False)
@click.option("--memory", "memory_id", metavar="MEMORY_ID", help="The decision that made this merged statement.")
@json_option
@click.pass_obj
def unmerge(session: Session, decision_id: str | None, memory_id: str | None, *, as_json: bool) -> None:
    """Take DECISION_ID back: what it superseded is found again, and what it merged is removed."""
    if bool(decision_id) == bool(memory_id):
        raise click.UsageError("name a decision, or a merged statement with --memory; `mnemon decisions` lists them")
    answer = session.client.unmerge(decision_id or "", memory_id=memory_id or "")
    if as_json:
        click.echo(answer.to_json())
        return
    for memory in answer.restored:
        click.echo(f"restored {memory.memory_id}")
    if answer.removed_id:
        click.echo(f"removed {answer.removed_id}")


@click.command("index-status")
@json_option
@click.pass_obj
def index_status(session: Session, *, as_json: bool) -> None:
    """Say how the index of statements is, and whether writes are held back."""
    status = session.client.semantic_index_status()
    if as_json:
        click.echo(status.to_json())
    else:
        session.console.print(statement_render.index_table(status))
