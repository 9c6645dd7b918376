"""The commands that find, list and forecast memories."""

import json
from datetime import datetime
from itertools import islice
from typing import Any

import click

from mnemon._cli.documents.read import note, note_cut, note_relevance
from mnemon._cli.memories import render as memory_render
from mnemon._cli.memories.options import future, which_options
from mnemon._cli.options import json_option, limit_option, mode_option
from mnemon._cli.session import Session
from mnemon._terminal import echo

_LIST_LIMIT = 100
_PAGE_SIZE_MAX = 1000


@click.command()
@click.argument("query")
@limit_option(10, maximum=1000)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    default=0.3,
    show_default=True,
    help="Leave out memories below this confidence.",
)
@which_options
@mode_option
@click.option("--min-score", type=click.FloatRange(0, 1), default=0.0, help="Leave out results below this score.")
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
@json_option
@click.pass_obj
def recall(
    session: Session,
    query: str,
    mode: str,
    *,
    limit: int,
    min_confidence: float,
    which: dict[str, Any],
    min_score: float,
    explain: bool,
    as_json: bool,
) -> None:
    """Find the memories most relevant to QUERY, best first."""
    answer = session.client.recall(
        query, limit=limit, min_confidence=min_confidence, mode=mode, min_score=min_score, explain=explain, **which
    )
    note_cut(truncated=answer.truncated)
    if as_json:
        echo(answer.to_json())
        return
    note_relevance(answer)
    if answer.diagnostics.degraded:
        note([f"the vector database was not asked: {answer.diagnostics.degraded}; the answer is complete"])
    session.console.print(memory_render.recall_table(answer))


@click.command("memories")
@click.argument("memory_id", required=False)
@which_options
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Only memories with at least this confidence now.",
)
@click.option("--deleted", "show_deleted", is_flag=True, help="Include forgotten memories that are not yet purged.")
@limit_option(_LIST_LIMIT)
@click.option("--count", "only_count", is_flag=True, help="Only count them.")
@json_option
@click.pass_obj
def list_memories(
    session: Session,
    memory_id: str | None,
    *,
    which: dict[str, Any],
    min_confidence: float,
    show_deleted: bool,
    limit: int,
    only_count: bool,
    as_json: bool,
) -> None:
    """List memories in the order of their creation, or show the one with MEMORY_ID."""
    chosen = {**which, "min_confidence": min_confidence, "show_deleted": show_deleted}
    if memory_id is not None:
        if which or min_confidence or show_deleted or only_count:
            raise click.UsageError("name one memory, or say which ones with options; not both")
        _show_one(session, memory_id, as_json=as_json)
    elif only_count:
        number = session.client.memories.count(**chosen)
        echo(json.dumps({"count": number}) if as_json else f"{number}")
    else:
        _list(session, chosen, limit=limit, as_json=as_json)


def _show_one(session: Session, memory_id: str, *, as_json: bool) -> None:
    memory = session.client.memories.get(memory_id)
    if as_json:
        echo(memory.to_json())
    else:
        session.console.print(memory_render.memory_sheet(memory), soft_wrap=True)


def _list(session: Session, chosen: dict[str, Any], *, limit: int, as_json: bool) -> None:
    page_size = min(limit + 1, _PAGE_SIZE_MAX) if limit else _PAGE_SIZE_MAX
    found = session.client.memories.list(page_size=page_size, **chosen)
    if as_json:
        for memory in islice(found, limit or None):
            echo(memory.to_json())
    else:
        session.console.print(memory_render.memory_table(islice(found, limit or None)))
    if limit and next(found, None) is not None:
        note([f"there are more; the first {limit:,} are shown, and --limit 0 shows all"])


@click.command()
@click.option(
    "--by", type=future, required=True, metavar="TIME|AGE", help="The time: 2027-01-31, or 12h or 30d from now."
)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    show_default=True,
    help="The confidence below which they fall.",
)
@which_options
@json_option
@click.pass_obj
def forecast(session: Session, by: datetime, *, min_confidence: float, which: dict[str, Any], as_json: bool) -> None:
    """Show which memories will fall below a confidence by a given time, so that you can reinforce them first."""
    found = session.client.memories.forecast(by, min_confidence=min_confidence, **which)
    if as_json:
        for each in found:
            echo(each.to_json())
    else:
        session.console.print(memory_render.forecast_table(found))
