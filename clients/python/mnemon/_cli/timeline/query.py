"""The commands that show and count what happened."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from mnemon._cli.documents.read import note, note_cut, note_more, note_relevance, page_size_of
from mnemon._cli.options import json_option, limit_option
from mnemon._cli.session import Session
from mnemon._cli.timeline import render as event_render
from mnemon._cli.timeline.options import which_events_options, window_options
from mnemon._terminal import echo
from mnemon._values import documents as values
from mnemon._values import timeline

_LIMIT = 50
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@click.command("timeline")
@click.argument("query", required=False)
@window_options
@which_events_options
@click.option(
    "--mode",
    type=click.Choice([each.value for each in values.SearchMode]),
    help="With QUERY: by meaning, by word, or both.  [default: hybrid]",
)
@limit_option(_LIMIT)
@json_option
@click.pass_obj
def show_timeline(
    session: Session,
    query: str | None,
    *,
    since: datetime | None,
    until: datetime | None,
    which: dict[str, Any],
    mode: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show events, newest first; with QUERY, those that match this text best."""
    if query is None and mode:
        raise click.UsageError("--mode goes with QUERY: it says how a text finds events")
    if query is not None:
        if not limit:
            raise click.UsageError("--limit 0 does not go with QUERY: the best are at most 1,000")
        # Otherwise the server would only search the last 30 days, but a command without a time means all.
        answer = session.client.timeline.search(
            query, since=since or _BEGINNING, until=until, mode=mode, limit=limit, **which
        )
        _show_answer(session, answer, as_json=as_json)
        return
    found = _events(session, since, until, which, page_size_of(limit))
    if as_json:
        for event in islice(found, limit or None):
            echo(event.to_json())
    else:
        session.console.print(event_render.event_table(islice(found, limit or None)))
    note_more(limit, next(found, None) if limit else None)


def _events(
    session: Session, since: datetime | None, until: datetime | None, which: dict[str, Any], page_size: int
) -> Iterator[timeline.EpisodicEvent]:
    if since is None and until is None:
        return session.client.timeline.list(page_size=page_size, **which)
    return session.client.timeline.list(since=since, until=until, page_size=page_size, **which)


def _show_answer(session: Session, answer: timeline.WindowAnswer, *, as_json: bool) -> None:
    if as_json:
        echo(answer.to_json())
    else:
        session.console.print(event_render.answer_table(answer))
        note_relevance(answer)
    note_cut(truncated=answer.truncated)
    if answer.diagnostics.pending:
        note([f"{answer.diagnostics.pending:,} events have yet to be indexed; this search may have missed them"])


@click.command()
@click.argument("event_id")
@json_option
@click.pass_obj
def happened(session: Session, event_id: str, *, as_json: bool) -> None:
    """Show the event with EVENT_ID."""
    event = session.client.timeline.get(event_id)
    if as_json:
        echo(event.to_json())
    else:
        session.console.print(event_render.event_sheet(event), soft_wrap=True)


@click.command()
@window_options
@which_events_options
@json_option
@click.pass_obj
def summary(
    session: Session, *, since: datetime | None, until: datetime | None, which: dict[str, Any], as_json: bool
) -> None:
    """Count events by type and by day."""
    found = session.client.timeline.summarize(since=since, until=until, **which)
    if as_json:
        echo(found.to_json())
    else:
        session.console.print(event_render.summary_table(found))


@click.command("timeline-status")
@json_option
@click.pass_obj
def timeline_status(session: Session, *, as_json: bool) -> None:
    """Show the state of the timeline, and which events were lost."""
    status = session.client.timeline.status()
    if as_json:
        echo(status.to_json())
    else:
        session.console.print(event_render.status_table(status))
