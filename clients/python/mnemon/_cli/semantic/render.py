"""Formats statements, conflicts and decisions for people."""

from collections.abc import Iterable, Iterator
from dataclasses import fields

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._cli.render import field_table, one_line, plain, short_time, shown
from mnemon._values import decisions, semantic

_CONTENT_CHARACTERS_MAX = 400
_NAMES = {"create_time": "learnt", "update_time": "changed"}
_SHOWN_APART = {"memory_id", "content", "metadata", "embedding", *semantic.TAGS}
_IDS = ("candidate", "existing", "result")


def similarity_table(answer: semantic.SimilarityAnswer) -> RenderableType:
    """The results of a search, each with the statement's text, its id and its tags."""
    if not answer:
        return Text("nothing found")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("similarity", justify="right", no_wrap=True)
    table.add_column("statement", ratio=1, overflow="fold")
    for match in answer:
        similarity = "" if match.similarity is None else f"{match.similarity:.3f}"
        table.add_row(f"{match.score:.3f}", similarity, _lines(match.memory))
    return table


def statement_table(found: Iterable[semantic.SemanticMemory]) -> RenderableType:
    """Statements, each with its text, its id and its tags."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("learnt", no_wrap=True)
    table.add_column("statement", ratio=1, overflow="fold")
    for memory in found:
        table.add_row(short_time(memory.create_time), _lines(memory))
    return table if table.row_count else Text("nothing is known")


def statement_sheet(memory: semantic.SemanticMemory) -> RenderableType:
    """One statement: its fields, then its text."""
    names = [*semantic.TAGS, *(each.name for each in fields(memory) if each.name not in _SHOWN_APART)]
    rows = {_NAMES.get(name, name.replace("_", " ")): shown(getattr(memory, name)) for name in names}
    about = field_table({"statement": memory.memory_id, **rows})
    return Group(about, field_table(memory.metadata), Text(), plain(memory.content))


def decision_table(found: Iterable[decisions.Decision]) -> RenderableType:
    """Decisions, each with its reason and the ids of what it is about."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("decided", no_wrap=True)
    table.add_column("action", no_wrap=True)
    table.add_column("decision", ratio=1, overflow="fold")
    for decision in found:
        table.add_row(short_time(decision.create_time), decision.arbitration.action, Group(*_decision_lines(decision)))
    return table if table.row_count else Text("nothing was decided")


def conflict_line(conflict: decisions.Conflict) -> str:
    """One conflict: with what, and why."""
    signals = ", ".join(f"{signal.type} {signal.score:.2f}" for signal in conflict.signals)
    return plain(f"conflicts with {conflict.memory_id}: {signals}").plain


def decision_line(decision: decisions.Decision) -> str:
    """Why it was decided so."""
    return plain(f"decision {decision.decision_id}: {decision.arbitration.reason}").plain


def index_table(status: semantic.SemanticIndexStatus) -> RenderableType:
    """The state of the semantic index."""
    starting = status.state == semantic.IndexState.STARTING
    return field_table(
        {
            "state": status.state,
            "message": status.message,
            "progress": f"{status.indexed_count:,} of {status.total_count:,} vectors" if starting else "",
            "statements": f"{status.record_count:,}, and {status.superseded_count:,} superseded",
            "capacity": f"{status.capacity:,}",
            "write latency": f"{status.write_latency_s * 1000:.1f} ms, at most "
            f"{status.write_latency_target_s * 1000:.1f} ms wanted",
            "memory": f"{status.memory_bytes / (1 << 20):,.1f} MiB, {status.graph_count:,} vectors in the graph",
            "snapshot": short_time(status.snapshot_time) or "none",
            "judge": f"failed {status.judge_failed_count:,} times" if status.judge_failed_count else "",
        }
    )


def _decision_lines(decision: decisions.Decision) -> Iterator[RenderableType]:
    arbitration = decision.arbitration
    yield plain(arbitration.reason)
    yield plain(
        f"{decision.decision_id}  rule={decision.rule}  strategy={arbitration.strategy}  "
        f"confidence={arbitration.confidence:.2f}",
        "dim",
    )
    yield plain("  ".join(f"{name}={getattr(decision, f'{name}_id') or 'none'}" for name in _IDS), "dim")
    if decision.revert_time:
        yield plain(f"undone {short_time(decision.revert_time)}", "dim")


def _lines(memory: semantic.SemanticMemory) -> RenderableType:
    tags = [f"{name}={getattr(memory, name)}" for name in semantic.TAGS if getattr(memory, name)]
    marks = [] if memory.importance is None else [f"importance={memory.importance:g}"]
    marks += ["superseded"] if memory.superseded_by else []
    text = one_line(memory.content, _CONTENT_CHARACTERS_MAX)
    return Group(text, plain("  ".join([memory.memory_id, *tags, *marks]), "dim"))
