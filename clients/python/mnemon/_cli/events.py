"""The commands for events: the timeline, and the bridge from it to statements."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.progress import DownloadColumn
from rich.text import Text

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.json_lines import EVENT_LINES, read_records, store_lines
from mnemon._cli.progress import show_progress
from mnemon._cli.session import Session
from mnemon._cli.unknown_users import note_unknown_user
from mnemon._values import bridge as bridge_values
from mnemon._values import documents as values
from mnemon._values import timeline
from mnemon._values.semantic import ConflictPolicy
from mnemon.shared.errors import MnemonError
from mnemon.shared.terminal import counted, echo

_LIMIT = 50
_TYPES_SHOWN = 20
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
_DAY_S = 86_400
_COLUMNS = {"happened": out.SHORT, "type": {"overflow": "fold", "max_width": 24}, "event": out.REST}

_event_options = opt.collected(
    "fields",
    {
        **opt.owner_options(),
        "event_type": click.option(
            "--type",
            "event_type",
            callback=opt.some,
            help="The type of event: conversation, task, reminder, emotion, preference, custom, other.",
        ),
        "event_time": click.option(
            "--happened", "event_time", type=opt.past, metavar="TIME|AGE", help="When it happened.  [default: now]"
        ),
        "importance": click.option("--importance", type=click.FloatRange(0, 1), help="How much it matters."),
        "context": click.option("--context", callback=opt.some, help="The context in which it happened."),
        "source": click.option(
            "--source",
            callback=opt.some,
            help="Where it comes from: user, conversation, skill, system, inferred, other.",
        ),
        "conversation": click.option("--conversation", callback=opt.some, help="The conversation that it belongs to."),
    },
    opt.given_of,
)
_which_events = opt.which_options(
    {
        **opt.owner_options(),
        "min_trust": opt.min_trust_option,
        "event_types": click.option(
            "--type", "event_types", multiple=True, help="Only events of this type; repeatable."
        ),
        "min_importance": click.option(
            "--min-importance", type=click.FloatRange(0, 1), help="Only events of at least this importance."
        ),
        "conversation": click.option("--conversation", callback=opt.some, help="Only events of this conversation."),
        "comparisons": opt.where_option("events", "metadata.score>=3, source!=inferred"),
    }
)
_window_options = opt.collected("window", opt.span_options("events"), opt.given_of)


# Commands


@click.command()
@click.argument("text", required=False, type=opt.text_or_stdin)
@opt.file_option("Record")
@_event_options
@opt.meta_option("event")
@opt.json_option
def record(
    session: Session,
    text: str | None,
    path: str | None,
    *,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
) -> None:
    """Record TEXT as an event of the timeline, or many with --file; - reads standard input.

    A line of the file is a JSON text in quotes, or an object: {"content": "...", "event_type": "task", "event_time":
    "..."}. The options apply if a line does not set them. Known events are not stored again.
    """
    if (text is None) == (path is None):
        raise click.UsageError("give the TEXT of what happened, or --file with many; not both")
    if path is not None:
        lines = read_records(path, EVENT_LINES, fields, metadata)
        with store_lines(session, path, "recording", ("recorded", "known")) as report:
            for result in session.client.timeline.add_many(report.items_of(lines)):
                said = {"event_id": result.event_id, "duplicate": result.duplicate}
                report.show("known" if result.duplicate else "recorded", said, result.error)
        return
    needed = {"event_type": "with --type what kind of event it is", "user": "with --user whose it is"}
    if missing := [said for name, said in needed.items() if name not in fields]:
        raise click.UsageError(f"say {', and '.join(missing)}")
    receipt = session.client.timeline.add(content=text or "", metadata=metadata, **fields)
    outcome = "known already:" if receipt.duplicate else "recorded"
    out.show(session, receipt, f"{outcome} {receipt.event_id}")


@click.command("timeline")
@click.argument("query", required=False, type=opt.text_or_stdin)
@_window_options
@_which_events
@click.option(
    "--mode", type=opt.choice_of(values.SearchMode), help="With QUERY: by meaning, by word, or both.  [default: hybrid]"
)
@opt.limit_option(_LIMIT)
@opt.json_option
def show_timeline(
    session: Session,
    query: str | None,
    *,
    window: dict[str, Any],
    which: dict[str, Any],
    mode: str | None,
    limit: int,
) -> None:
    """Show events, newest first; with QUERY, those that match this text best."""
    if query is None:
        if mode:
            raise click.UsageError("--mode goes with QUERY: it says how a text finds events")
        found = session.client.timeline.list(page_size=out.page_size_of(limit), **window, **which)
        if not out.show_list(session, found, event_table, limit=limit):
            _note_unknown(session, which)
        return
    if not limit:
        raise click.UsageError("--limit 0 does not go with QUERY: the best are at most 1,000")
    # Otherwise the server would only search the last 30 days, but a command without a time means all.
    span = {"since": _BEGINNING, **window}
    answer = session.client.timeline.search(query, **span, mode=mode, limit=limit, **which)
    out.show_answer(session, answer, answer_table)
    if not answer.results:
        _note_unknown(session, which)
    if answer.diagnostics.pending:
        out.note(f"not yet indexed: {counted(answer.diagnostics.pending, 'event')}, which this search may have missed")


@click.command()
@click.argument("event_id")
@opt.json_option
def happened(session: Session, event_id: str) -> None:
    """Show the event with EVENT_ID."""
    out.show(session, session.client.timeline.get(event_id), event_sheet, soft_wrap=True)


@click.command()
@_window_options
@_which_events
@opt.json_option
def summary(session: Session, *, window: dict[str, Any], which: dict[str, Any]) -> None:
    """Count events by type and by day."""
    found = session.client.timeline.summarize(time_zone=session.time_zone, **window, **which)
    out.show(session, found, partial(summary_table, zone=session.time_zone or "UTC"))
    if not found.event_count:
        _note_unknown(session, which)


@click.command()
@click.argument("event_ids", nargs=-1, metavar="[EVENT_ID]...")
@click.option("--before", type=opt.past, metavar="TIME|AGE", help="Only events before this time: 2027-01-31, 12h, 30d.")
@_which_events
@click.option("--allow-missing", is_flag=True, help="Ignore unknown ids.")
@opt.dry_run_option
@opt.yes_option
@opt.json_option
def prune(
    session: Session,
    /,
    event_ids: tuple[str, ...],
    *,
    before: datetime | None,
    which: dict[str, Any],
    allow_missing: bool,
    **how: Any,
) -> None:
    """Permanently remove events, named ones or all that match, and the statements that the bridge made from them."""
    if bool(event_ids) == bool(which or before):
        raise click.UsageError("name events, or say which with options such as --before or --user; not both")
    chosen = {"event_ids": event_ids or None, "before": before, "allow_missing": allow_missing, **which}
    if not out.remove_matching(session, session.client.timeline.delete_many, _number, **how, **chosen):
        _note_unknown(session, which)


def _note_unknown(session: Session, which: Mapping[str, Any]) -> None:
    """Notes chosen types and a user that no event has, after an answer without events."""
    with suppress(MnemonError):  # as in note_unknown_user
        types = session.client.timeline.summarize().types if "event_types" in which else {}
        there = f"; there are: {', '.join([*types][:_TYPES_SHOWN])}" if types else ""
        for event_type in which.get("event_types", ()):
            if event_type not in types:
                out.note(f"no event has the type {event_type!r}{there}")
    note_unknown_user(session, which.get("user"), "event")


def _number(receipt: timeline.PruneReceipt) -> str:
    span = (
        f" from {out.short_time(receipt.earliest)} to {out.short_time(receipt.latest)}" if receipt.pruned_count else ""
    )
    return counted(receipt.pruned_count, "event") + span


@click.command()
@opt.json_option
def compact(session: Session) -> None:
    """Seal and rewrite the segments of the timeline, and free the disk space of removed events."""
    last = show_progress(
        session,
        "compacting",
        session.client.timeline.compact(),
        lambda progress: (progress.processed_bytes, progress.total_bytes),
        DownloadColumn(),
        said=out.mebibytes,
    )
    if last and not session.as_json:
        echo(f"{counted(last.segment_count, 'segment')}, {out.mebibytes(last.reclaimed_bytes)} given back")


@click.command("timeline-status")
@opt.json_option
def timeline_status(session: Session) -> None:
    """Show the state of the timeline, and which events were lost."""
    out.show(session, session.client.timeline.status(), status_table)


@click.group()
def bridge() -> None:
    """Control the bridge, which saves events of the timeline as statements, and takes them back after a prune."""


@bridge.command()
@opt.json_option
def status(session: Session) -> None:
    """Show the state of the bridge, and what it has done."""
    out.show(session, session.client.bridge.status(), bridge_table)


@bridge.command()
@click.pass_obj
def pause(session: Session) -> None:
    """Stop the bridge until it is resumed, even if the server restarts; events wait."""
    session.client.bridge.pause()
    echo("paused")


@bridge.command()
@click.pass_obj
def resume(session: Session) -> None:
    """Let the bridge continue where it stopped."""
    session.client.bridge.resume()
    echo("resumed")


@bridge.command()
@click.option(
    "--min-importance", type=click.FloatRange(0, 1), help="Events of at least this importance become statements."
)
@click.option("--type", "event_types", multiple=True, help="Events of this type become statements; repeatable.")
@click.option(
    "--mode",
    type=opt.choice_of(bridge_values.RoutingMode),
    help="Whether both conditions must be met, or one is enough.",
)
@click.option("--content-max", type=int, help="Maximum length of a statement in characters.")
@click.option(
    "--on-prune",
    type=opt.choice_of(bridge_values.PruneAction),
    help="What happens to a statement whose events were pruned.",
)
@click.option("--demoted-importance", type=click.FloatRange(0, 1), help="The maximum importance after demoting.")
@click.option(
    "--conflicts", "conflict_policy", type=opt.choice_of(ConflictPolicy), help="How a save handles conflicts."
)
@click.option(
    "--extract",
    type=opt.choice_of(bridge_values.ExtractMode),
    help="Who makes statements of the messages of conversations.",
)
@click.option("--reset", is_flag=True, help="Reset all other fields to their defaults.")
@opt.json_option
def policy(session: Session, /, *, reset: bool, **given: Any) -> None:
    """Show which events become statements, and how; or change the given fields."""
    changes = opt.given_of(given)
    if reset or changes:
        held = session.client.bridge.update_policy(bridge_values.RoutingPolicy() if reset else None, **changes)
    else:
        held = session.client.bridge.policy()
    out.show(session, held, policy_table)


_whose = opt.collected("whose", opt.owner_options(user_required=True), opt.given_of)


@bridge.command()
@click.argument("conversation", type=opt.visible)
@_whose
@click.option(
    "--last",
    type=click.IntRange(1, 200),
    help="How many of its messages, counted from the newest.  [default: as many as are extracted together]",
)
@click.option(
    "--extract",
    type=opt.choice_of(each for each in bridge_values.ExtractMode if each != bridge_values.ExtractMode.OFF),
    help="The extractor to ask.  [default: the one in the policy]",
)
@opt.json_option
def preview(session: Session, /, conversation: str, *, whose: dict[str, Any], **how: Any) -> None:
    """Show what extracting from the newest messages of CONVERSATION would save; nothing is saved."""
    found = session.client.bridge.preview_extraction(conversation_id=conversation, **whose, **opt.given_of(how))
    if found.refusal and not session.as_json:
        raise click.ClickException(f"the extractor's answer was refused ({found.refusal}): {found.refusal_message}")
    out.show(session, found, preview_table)


# Tables


def event_table(found: Iterable[timeline.EpisodicEvent]) -> RenderableType:
    """Events, each with its text, its id and its tags."""
    return out.record_table(_COLUMNS, map(_row, found), "nothing happened")


def answer_table(answer: timeline.WindowAnswer) -> RenderableType:
    """Events that match a text, with their scores."""
    rows = ([out.score(each.score.relevance if each.score else None), *_row(each.event)] for each in answer.results)
    return out.record_table({"score": out.NUMBER, **_COLUMNS}, rows)


def event_sheet(event: timeline.EpisodicEvent) -> RenderableType:
    """One event: its fields, then its text."""
    fields = {
        "event": event.event_id,
        "type": event.event_type,
        **{name: getattr(event, name) for name in timeline.TAGS},
        "importance": "" if event.importance is None else f"{event.importance:g}",
        "happened": out.short_time(event.event_time),
        "recorded": out.short_time(event.record_time),
        "context": event.context,
    }
    return out.record_sheet(fields, event.metadata, event.content)


def summary_table(summary: timeline.EventSummary, zone: str = "UTC") -> RenderableType:
    """Count events by type and by day."""
    if not summary.event_count:
        return Text("nothing happened")
    span = f"{out.short_time(summary.earliest)} to {out.short_time(summary.latest)}"
    return Group(
        out.field_table({"events": f"{summary.event_count:,}", "happened": span}),
        Text(),
        out.field_table({name: f"{count:,}" for name, count in summary.types.items()}),
        Text(),
        out.plain(f"by day in {zone}", "dim"),
        out.field_table({day: f"{count:,}" for day, count in summary.days.items()}),
    )


def status_table(status: timeline.TimelineStatus) -> RenderableType:
    """The state of the timeline."""
    span = f", {out.short_time(status.earliest)} to {out.short_time(status.latest)}" if status.event_count else ""
    fields = {
        "state": status.state,
        "message": status.message,
        "events": f"{status.event_count:,}{span}",
        "segments": f"{status.segment_count:,}, {out.mebibytes(status.segment_bytes)}",
        "not sealed": counted(status.unsealed_count, "event"),
        "being removed": counted(status.removal_pending_count, "event") if status.removal_pending_count else "",
        "index": out.mebibytes(status.index_bytes),
        "text index": f"{counted(status.text_pending_count, 'event')} behind" if status.text_pending_count else "",
        "retention": "for ever" if status.retention_s is None else f"{status.retention_s / _DAY_S:g} days",
        "read through": out.short_time(status.scrub_time) or "never yet",
    }
    return Group(out.field_table(fields), *map(_lost_line, status.lost))


def bridge_table(status: bridge_values.BridgeStatus) -> RenderableType:
    """The state of the bridge."""
    skipped = ", ".join(f"{count:,} by {reason}" for reason, count in status.skipped_counts.items())
    lag = status.timeline_lag_s
    return out.field_table(
        {
            "state": status.state,
            "activity": status.activity,
            "message": status.message,
            "waiting": f"{counted(status.queue_depth, 'event')} of the feed",
            "saved": f"{counted(status.routed_count, 'statement')}, {status.linked_count:,} known linked",
            "skipped": skipped or "none",
            "taken back": f"{status.deleted_count:,} deleted, {status.demoted_count:,} demoted",
            "handled": out.short_time(status.handled_time) or "nothing yet",
            "lag": "" if lag is None else f"{lag:,.1f} s",
            **({} if status.extraction is None else _extraction_fields(status.extraction)),
        }
    )


def preview_table(preview: bridge_values.ExtractionPreview) -> RenderableType:
    """The statements that an extraction would save, each with what would become of it, and the summary."""
    columns = {"importance": out.NUMBER, "statement": out.REST, "outcome": out.SHORT}
    rows = (
        [
            "" if each.memory is None or each.memory.importance is None else f"{each.memory.importance:g}",
            out.plain(each.content),
            _outcome_of(each),
        ]
        for each in preview.statements
    )
    table = out.record_table(columns, rows, f"nothing to keep in {counted(preview.message_count, 'message')}")
    return Group(table, Text(), out.plain(f"summary: {preview.summary}")) if preview.summary else table


def _outcome_of(statement: bridge_values.ExtractedStatement) -> str:
    if statement.duplicate:
        return "known already"
    if statement.decision is None:
        return "new"
    return f"{statement.decision.arbitration.action}: {statement.decision.arbitration.reason}"


def _extraction_fields(extraction: bridge_values.ExtractionStatus) -> dict[str, str]:
    refused = ", ".join(f"{count:,} by {reason}" for reason, count in extraction.refused_counts.items())
    return {
        "extracted": f"{counted(extraction.statement_count, 'statement')} of "
        f"{counted(extraction.extracted_count, 'message')}, {extraction.waiting_count:,} waiting",
        "extractor": f"{counted(extraction.call_count, 'call')}, {counted(extraction.token_count, 'token')}",
        "answers refused": refused or "none",
        "extraction": extraction.message,
    }


def policy_table(policy: bridge_values.RoutingPolicy) -> RenderableType:
    """Which events become statements."""
    return out.field_table(
        {
            "min importance": policy.min_importance,
            "types": ", ".join(policy.event_types),
            "mode": policy.mode,
            "content max": f"{policy.content_max} characters",
            "on prune": policy.on_prune,
            "demoted importance": policy.demoted_importance,
            "conflicts": policy.conflict_policy,
            "extract": policy.extract,
        }
    )


def _row(event: timeline.EpisodicEvent) -> list[Any]:
    tags = {name: getattr(event, name) for name in timeline.TAGS}
    importance = "" if event.importance is None else f"importance={event.importance:g}"
    lines = out.record_lines(event.content, event.event_id, tags, importance)
    return [out.short_time(event.event_time), event.event_type, lines]


def _lost_line(lost: timeline.LostRange) -> Text:
    return out.plain(
        f"lost: {counted(lost.event_count, 'event')}, sequences {lost.first_sequence} to {lost.last_sequence} of "
        f"segment {lost.segment_id}, noticed {out.short_time(lost.notice_time)}"
    )
