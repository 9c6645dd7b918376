"""The commands for memories."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import click
from rich.console import Group, RenderableType

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.json_lines import MEMORY_LINES, LineReport, read_records, store_lines
from mnemon._cli.session import Session
from mnemon._cli.unknown_users import note_unknown_user
from mnemon._values import documents as values
from mnemon._values import memories
from mnemon._values.filters import F
from mnemon.shared.errors import MemoryExistsError, MnemonError
from mnemon.shared.terminal import counted, echo

_SAID = ("content", *memories.TAGS, "is_global", "decay", "metadata")
"""The fields of a memory that a line sets."""

_memory_options = opt.collected(
    "fields",
    {
        **opt.text_options(memories.TAGS),
        "decay": click.option(
            "--decay", type=opt.choice_of(memories.DecayPolicy), help="How its confidence decays.  [default: stable]"
        ),
        "is_global": click.option(
            "--global", "is_global", is_flag=True, help="It is valid beyond its project and agent."
        ),
    },
    lambda given: {name: value for name, value in given.items() if value},
)
_which_memories = opt.which_options(
    {
        **opt.text_options(memories.TAGS),
        "min_trust": opt.min_trust_option,
        "filters": opt.filter_option("memories"),
        "comparisons": opt.where_option("memories", "metadata.score>=3, agent!=claude"),
        "is_global": click.option(
            "--global/--not-global",
            "is_global",
            default=None,
            help="Only memories that are valid beyond their project and agent.",
        ),
        **opt.span_options("memories created"),
    },
    since="created_from",
    until="created_to",
    filters="metadata",
)


# Commands


@click.command()
@click.argument("text", required=False, type=opt.text_or_stdin)
@opt.file_option("Store")
@_memory_options
@opt.meta_option("memory")
@opt.ack_option("memory")
@opt.json_option
def remember(
    session: Session,
    text: str | None,
    path: str | None,
    ack: str,
    *,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
) -> None:
    """Store TEXT as a memory, or many with --file; - reads standard input.

    A line of the file is a JSON text in quotes, or an object: {"content": "...", "type": "preference", "metadata":
    {...}}. The options apply if a line does not set them. A line with the memory_id of an existing memory updates
    that memory.
    """
    if (text is None) == (path is None):
        raise click.UsageError("give the TEXT to remember, or --file with many; not both")
    if text is not None:
        memory = session.client.remember(text, metadata=metadata, ack=ack, **fields)
        out.show(session, memory, f"remembered {memory.memory_id}")
    elif path is not None:
        lines = read_records(path, MEMORY_LINES, fields, metadata)
        with store_lines(session, path, "remembering", ("remembered", "updated", "unchanged")) as report:
            _remember_all(session, report, report.items_of(lines), ack)


def _remember_all(session: Session, report: LineReport, items: Iterable[memories.MemoryLike], ack: str) -> None:
    sent: deque[memories.MemoryLike] = deque()
    for result in session.client.memories.add_many(_noted(items, sent), ack=ack):
        item = sent.popleft()
        if isinstance(result.error, MemoryExistsError):
            _show_update(session, report, item, ack)
        else:
            report.show("remembered", {"memory_id": result.memory_id}, result.error)


def _noted(items: Iterable[memories.MemoryLike], sent: deque[memories.MemoryLike]) -> Iterator[memories.MemoryLike]:
    for item in items:
        sent.append(item)
        yield item


def _show_update(session: Session, report: LineReport, item: memories.MemoryLike, ack: str) -> None:
    """Updates the existing memory from the line."""
    memory, embedding = item if isinstance(item, tuple) else (item, None)
    if not isinstance(memory, memories.Memory):
        raise TypeError("a text has no id that could be taken")
    said = {name: getattr(memory, name) for name in _SAID}
    outcome, error = "unchanged", None
    try:
        stored = session.client.memories.get(memory.memory_id)
        if said != {name: getattr(stored, name) for name in _SAID}:
            vector = embedding if memory.content != stored.content else None
            session.client.memories.update(memory.memory_id, **said, embedding=vector, ack=ack)
            outcome = "updated"
    except MnemonError as failure:
        error = failure
    report.show(outcome, {"memory_id": memory.memory_id}, error)


@click.command()
@click.argument("query", type=opt.text_or_stdin)
@opt.limit_option(10, maximum=1000)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    default=0.3,
    show_default=True,
    help="Leave out memories below this confidence.",
)
@_which_memories
@opt.mode_option
@opt.min_score_option
@opt.as_of_option
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
@opt.json_option
def remembered(session: Session, /, query: str, which: dict[str, Any], **how: Any) -> None:
    """Find the memories most relevant to QUERY, best first."""
    answer = session.client.memories.search(query, **how, **which)
    out.show_answer(session, answer, match_table)
    if not answer.results:
        note_unknown_user(session, which.get("user"), "memory")


@click.command("memories")
@click.argument("memory_id", required=False)
@_which_memories
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Only memories with at least this confidence now.",
)
@click.option("--deleted", "show_deleted", is_flag=True, help="Include forgotten memories that are not yet purged.")
@opt.limit_option(out.LIST_LIMIT)
@click.option("--count", "only_count", is_flag=True, help="Only count them.")
@opt.json_option
def list_memories(
    session: Session,
    memory_id: str | None,
    *,
    which: dict[str, Any],
    min_confidence: float,
    show_deleted: bool,
    limit: int,
    only_count: bool,
) -> None:
    """List memories in the order of their creation, or show the one with MEMORY_ID."""
    chosen = {**which, "min_confidence": min_confidence, "show_deleted": show_deleted}
    if memory_id is not None:
        if which or min_confidence or show_deleted or only_count:
            raise click.UsageError("name one memory, or say which ones with options; not both")
        out.show(session, session.client.memories.get(memory_id), memory_sheet, soft_wrap=True)
    elif only_count:
        number = session.client.memories.count(**chosen)
        echo(json.dumps({"count": number}) if session.as_json else f"{number}")
    else:
        found = session.client.memories.list(page_size=out.page_size_of(limit), **chosen)
        if not out.show_list(session, found, memory_table, limit=limit):
            note_unknown_user(session, which.get("user"), "memory")


@click.command()
@click.argument("memory_ids", nargs=-1, required=True, metavar="MEMORY_ID...")
@opt.json_option
def reinforce(session: Session, memory_ids: tuple[str, ...]) -> None:
    """Reset the confidence of reinforceable memories to 1."""
    out.do_each(session, session.client.memories.reinforce, memory_ids, "reinforced")


@click.command()
@click.argument("memory_ids", nargs=-1, metavar="[MEMORY_ID]...")
@click.option("--undo", is_flag=True, help="Undo it: restore forgotten memories.")
@click.option(
    "--purge", is_flag=True, help="Remove permanently, including forgotten memories; options can select them."
)
@_which_memories
@click.option("--deleted", "only_deleted", is_flag=True, help="With --purge: only memories that are already forgotten.")
@click.option("--dry-run", is_flag=True, help="With --purge: only count.")
@click.option("--yes", "-y", is_flag=True, help="With --purge: do not ask for confirmation.")
@opt.json_option
def forget(
    session: Session,
    memory_ids: tuple[str, ...],
    *,
    undo: bool,
    purge: bool,
    which: dict[str, Any],
    only_deleted: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Forget memories, so that no search finds them. --undo restores them; --purge removes them permanently."""
    if undo and purge:
        raise click.UsageError("--undo and --purge contradict each other; choose one")
    if not purge and (which or only_deleted or dry_run or yes):
        raise click.UsageError("name the ids of memories; options such as --user, --dry-run and --yes go with --purge")
    if not memory_ids and not which and not only_deleted:
        which_ones = ", or say which ones, such as --user ada or --deleted" if purge else ""
        raise click.UsageError(f"name the ids of memories{which_ones}; `mnemon memories` shows them")
    if memory_ids and which:
        raise click.UsageError("name memories, or say which ones with options; not both")
    if purge:
        chosen = {"where": F("memory_id").isin(memory_ids)} if memory_ids else which
        out.remove_matching(
            session,
            session.client.memories.purge,
            lambda receipt: counted(receipt.purged_count, "memory", "memories"),
            done="purged",
            number_only=True,
            dry_run=dry_run,
            yes=yes,
            only_deleted=only_deleted,
            **chosen,
        )
    elif undo:
        out.do_each(session, session.client.memories.undelete, memory_ids, "remembered again:")
    else:
        out.do_each(session, session.client.memories.delete, memory_ids, "forgot")


@click.command()
@click.option(
    "--by", type=opt.future, required=True, metavar="TIME|AGE", help="The time: 2027-01-31, or 12h or 30d from now."
)
@click.option(
    "--min-confidence",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.3,
    show_default=True,
    help="The confidence below which they fall.",
)
@_which_memories
@opt.json_option
def forecast(session: Session, by: datetime, *, min_confidence: float, which: dict[str, Any]) -> None:
    """Show which memories will fall below a confidence by a given time, so that you can reinforce them first."""
    found = session.client.memories.forecast(by, min_confidence=min_confidence, **which)
    out.show_list(session, found, forecast_table, limit=0)


# Tables


def match_table(answer: memories.MemoryAnswer) -> RenderableType:
    """The results of a search, each with the memory's text, its id and its tags."""
    columns = {"score": out.NUMBER, "sure": out.NUMBER, "memory": out.REST}
    rows = ([out.score(match.score), _percent(match.confidence), _match_lines(match)] for match in answer)
    return out.record_table(columns, rows)


def memory_table(found: Iterable[memories.Memory]) -> RenderableType:
    """Memories, each with its text, its id and its tags."""
    columns = {"created": out.SHORT, "sure": out.NUMBER, "memory": out.REST}
    rows = ([out.short_time(each.create_time), _percent(each.confidence), _lines(each)] for each in found)
    return out.record_table(columns, rows, "no memories")


def forecast_table(found: Iterable[memories.MemoryForecast]) -> RenderableType:
    """Memories that decay: when, and their confidence now and then."""
    columns = {"fades": out.SHORT, "now": out.NUMBER, "then": out.NUMBER, "memory": out.REST}
    rows = (
        [
            out.short_time(each.fade_time),
            _percent(each.memory.confidence),
            _percent(each.confidence_then),
            _lines(each.memory),
        ]
        for each in found
    )
    return out.record_table(columns, rows, "nothing fades by then")


def memory_sheet(memory: memories.Memory) -> RenderableType:
    """One memory: its fields, then its text."""
    fields = {
        "memory": memory.memory_id,
        **{name: getattr(memory, name) for name in memories.TAGS},
        "global": "yes" if memory.is_global else "",
        "decay": memory.decay,
        "confidence": out.score(memory.confidence),
        "revision": memory.revision,
        "created": out.short_time(memory.create_time),
        "updated": out.short_time(memory.update_time),
        "reinforced": out.short_time(memory.reinforce_time),
    }
    return out.record_sheet(fields, memory.metadata, memory.content)


def status_table(status: memories.MemoryStatus) -> RenderableType:
    """The state of the memory service."""
    index = status.index
    return out.field_table(
        {
            "memories": f"{status.memory_count:,}, and {status.deleted_count:,} forgotten",
            "status": status.status,
            "message": status.error,
            "backend": " ".join(part for part in (status.backend, status.host, status.collection) if part),
            "vectors": f"{index.flat_count:,} compared one by one, {index.graph_count:,} in the graph, "
            f"{index.dead_count:,} dead; {index.bytes / (1 << 20):,.1f} MiB",
            "snapshot": out.short_time(index.snapshot_time) or "none",
            "pending": index.pending,
            "being removed": out.removals(index.removal_pending_count, index.removal_out_of_reach_count),
        }
    )


def _match_lines(match: memories.MemoryMatch) -> Group:
    if not (why := match.explanation):
        return _lines(match.memory)
    parts = " + ".join(f"{part.name} {part.score:.3f} x {part.weight:.2f}" for part in why.parts)
    words = ", ".join(why.matched_terms) or "none"
    return Group(_lines(match.memory), out.plain(f"{parts}; words: {words}", "dim"), out.plain(why.confidence, "dim"))


def _lines(memory: memories.Memory) -> Group:
    tags = {name: getattr(memory, name) for name in memories.TAGS}
    marks = "global" if memory.is_global else "", "forgotten" if memory.delete_time else ""
    return out.record_lines(memory.content, memory.memory_id, tags, *marks)


def _percent(confidence: float) -> str:
    return f"{confidence:.0%}"
