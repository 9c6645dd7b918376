"""Formats memories for people."""

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._cli.render import field_table, one_line, plain, removals, short_time
from mnemon._values import memories

_CONTENT_CHARACTERS_MAX = 400


def recall_table(answer: memories.RecallAnswer) -> RenderableType:
    """The results of a recall, each with the memory's text, its id and its tags."""
    if not answer:
        return Text("nothing found")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("sure", justify="right", no_wrap=True)
    table.add_column("memory", ratio=1, overflow="fold")
    for match in answer:
        table.add_row(f"{match.score:.3f}", _percent(match.confidence), Group(*_match_lines(match)))
    return table


def memory_table(found: Iterable[memories.Memory]) -> RenderableType:
    """Memories, each with its text, its id and its tags."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("created", no_wrap=True)
    table.add_column("sure", justify="right", no_wrap=True)
    table.add_column("memory", ratio=1, overflow="fold")
    for memory in found:
        table.add_row(
            short_time(memory.create_time), _percent(memory.confidence), Group(_first_words(memory), _tags(memory))
        )
    return table if table.row_count else Text("no memories")


def forecast_table(found: Iterable[memories.MemoryForecast]) -> RenderableType:
    """Memories that decay: when, and their confidence now and then."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("fades", no_wrap=True)
    table.add_column("now", justify="right", no_wrap=True)
    table.add_column("then", justify="right", no_wrap=True)
    table.add_column("memory", ratio=1, overflow="fold")
    for each in found:
        table.add_row(
            short_time(each.fade_time),
            _percent(each.memory.confidence),
            _percent(each.confidence_then),
            Group(_first_words(each.memory), _tags(each.memory)),
        )
    return table if table.row_count else Text("nothing fades by then")


def memory_sheet(memory: memories.Memory) -> RenderableType:
    """One memory: its fields, then its text."""
    fields = {
        "memory": memory.memory_id,
        **{name: getattr(memory, name) for name in memories.TAGS},
        "global": "yes" if memory.is_global else "",
        "decay": memory.decay,
        "confidence": f"{memory.confidence:.3f}",
        "revision": memory.revision,
        "created": short_time(memory.create_time),
        "updated": short_time(memory.update_time),
        "reinforced": short_time(memory.reinforce_time),
    }
    return Group(field_table(fields), field_table(memory.metadata), Text(), plain(memory.content))


def status_table(status: memories.MemoryStatus) -> RenderableType:
    """The state of the memory service."""
    index = status.index
    return field_table(
        {
            "memories": f"{status.memory_count:,}, and {status.deleted_count:,} forgotten",
            "status": status.status,
            "message": status.error,
            "backend": " ".join(part for part in (status.backend, status.host, status.collection) if part),
            "vectors": f"{index.flat_count:,} compared one by one, {index.graph_count:,} in the graph, "
            f"{index.dead_count:,} dead; {index.bytes / (1 << 20):,.1f} MiB",
            "snapshot": short_time(index.snapshot_time) or "none",
            "pending": index.pending,
            "being removed": removals(index.removal_pending_count, index.removal_out_of_reach_count),
        }
    )


def _match_lines(match: memories.MemoryMatch) -> list[RenderableType]:
    lines = [_first_words(match.memory), _tags(match.memory)]
    if why := match.explanation:
        parts = " + ".join(f"{part.name} {part.score:.3f} x {part.weight:.2f}" for part in why.parts)
        terms = ", ".join(why.matched_terms) or "none"
        lines += [plain(f"{parts}; words: {terms}", "dim"), plain(why.confidence, "dim")]
    return list(lines)


def _first_words(memory: memories.Memory) -> Text:
    return one_line(memory.content, _CONTENT_CHARACTERS_MAX)


def _tags(memory: memories.Memory) -> Text:
    tags = [f"{name}={getattr(memory, name)}" for name in memories.TAGS if getattr(memory, name)]
    marks = [*(["global"] if memory.is_global else []), *(["forgotten"] if memory.delete_time else [])]
    return plain("  ".join([memory.memory_id, *tags, *marks]), "dim")


def _percent(confidence: float) -> str:
    return f"{confidence:.0%}"
