"""Formats events of the timeline for people."""

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._cli.render import field_table, one_line, plain, short_time
from mnemon._values import bridge, timeline

_CONTENT_CHARACTERS_MAX = 400
_DAY_S = 86_400


def event_table(found: Iterable[timeline.EpisodicEvent]) -> RenderableType:
    """Events, each with its text, its id and its tags."""
    table = _table()
    for event in found:
        table.add_row(short_time(event.event_time), plain(event.event_type), _lines(event))
    return table if table.row_count else Text("nothing happened")


def answer_table(answer: timeline.WindowAnswer) -> RenderableType:
    """Events that match a text, with their scores."""
    if not answer:
        return Text("nothing found")
    table = _table("score")
    for match in answer.results:
        event, score = match.event, f"{match.score.relevance:.3f}" if match.score else ""
        table.add_row(score, short_time(event.event_time), plain(event.event_type), _lines(event))
    return table


def event_sheet(event: timeline.EpisodicEvent) -> RenderableType:
    """One event: its fields, then its text."""
    fields = {
        "event": event.event_id,
        "type": event.event_type,
        **{name: getattr(event, name) for name in timeline.TAGS},
        "importance": "" if event.importance is None else f"{event.importance:g}",
        "happened": short_time(event.event_time),
        "recorded": short_time(event.record_time),
        "context": event.context,
    }
    return Group(field_table(fields), field_table(event.metadata), Text(), plain(event.content))


def summary_table(summary: timeline.EventSummary) -> RenderableType:
    """How many events there are, by type and by day."""
    if not summary.event_count:
        return Text("nothing happened")
    span = f"{short_time(summary.earliest)} to {short_time(summary.latest)}"
    return Group(
        field_table({"events": f"{summary.event_count:,}", "happened": span}),
        Text(),
        field_table({name: f"{count:,}" for name, count in summary.types.items()}),
        Text(),
        field_table({day: f"{count:,}" for day, count in summary.days.items()}),
    )


def status_table(status: timeline.TimelineStatus) -> RenderableType:
    """The state of the timeline."""
    span = f", {short_time(status.earliest)} to {short_time(status.latest)}" if status.event_count else ""
    fields = {
        "state": status.state,
        "message": status.message,
        "events": f"{status.event_count:,}{span}",
        "segments": f"{status.segment_count:,}, {mebibytes(status.segment_bytes)}",
        "not sealed": f"{status.unsealed_count:,} events",
        "being removed": f"{status.removal_pending_count:,} events" if status.removal_pending_count else "",
        "index": mebibytes(status.index_bytes),
        "text index": f"{status.text_pending_count:,} events behind" if status.text_pending_count else "",
        "retention": "for ever" if status.retention_s is None else f"{status.retention_s / _DAY_S:g} days",
        "read through": short_time(status.scrub_time) or "never yet",
    }
    return Group(field_table(fields), *map(_lost_line, status.lost))


def bridge_table(status: bridge.BridgeStatus) -> RenderableType:
    """The state of the bridge."""
    skipped = ", ".join(f"{count:,} by {reason}" for reason, count in status.skipped_counts.items())
    lag = status.timeline_lag_s
    return field_table(
        {
            "state": status.state,
            "activity": status.activity,
            "message": status.message,
            "waiting": f"{status.queue_depth:,} events of the feed",
            "saved": f"{status.routed_count:,} statements, {status.linked_count:,} known ones linked",
            "skipped": skipped or "none",
            "taken back": f"{status.deleted_count:,} deleted, {status.demoted_count:,} demoted",
            "handled": short_time(status.handled_time) or "nothing yet",
            "lag": "" if lag is None else f"{lag:,.1f} s",
        }
    )


def policy_table(policy: bridge.RoutingPolicy) -> RenderableType:
    """Which events become statements."""
    return field_table(
        {
            "min importance": policy.min_importance,
            "types": ", ".join(policy.event_types),
            "mode": policy.mode,
            "content max": f"{policy.content_max} characters",
            "on prune": policy.on_prune,
            "demoted importance": policy.demoted_importance,
            "conflicts": policy.conflict_policy,
        }
    )


def mebibytes(number: int) -> str:
    """A number of bytes, to read."""
    return f"{number / (1 << 20):,.1f} MiB"


def _table(*more: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in more:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("happened", no_wrap=True)
    table.add_column("type", overflow="fold", max_width=24)
    table.add_column("event", ratio=1, overflow="fold")
    return table


def _lines(event: timeline.EpisodicEvent) -> RenderableType:
    tags = [f"{name}={getattr(event, name)}" for name in timeline.TAGS if getattr(event, name)]
    marks = [] if event.importance is None else [f"importance={event.importance:g}"]
    text = one_line(event.content, _CONTENT_CHARACTERS_MAX)
    return Group(text, plain("  ".join([event.event_id, *tags, *marks]), "dim"))


def _lost_line(lost: timeline.LostRange) -> Text:
    return plain(
        f"lost: {lost.event_count:,} events, sequences {lost.first_sequence} to {lost.last_sequence} of segment "
        f"{lost.segment_id}, noticed {short_time(lost.notice_time)}"
    )
