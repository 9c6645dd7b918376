"""The commands for statements, their conflicts and decisions."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import click
from rich.console import Group, RenderableType

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.session import Session
from mnemon._cli.unknown_users import note_unknown_user
from mnemon._values import conflicts, decisions, semantic
from mnemon._values import documents as values
from mnemon.shared.terminal import counted, echo

_NAMES = {"create_time": "learnt", "update_time": "changed"}
_SHOWN_APART = {"memory_id", "content", "metadata", "embedding", *semantic.TAGS}
_IDS = ("candidate", "existing", "result")

_which_statements = opt.which_options(
    {
        **opt.owner_options(),
        "min_trust": opt.min_trust_option,
        "comparisons": opt.where_option("statements", "importance>=0.5, source!=inferred"),
        **opt.span_options("statements learnt"),
    },
    since="created_from",
    until="created_to",
)


# Commands


@click.command()
@click.argument("text", type=opt.text_or_stdin)
@opt.collected("whose", opt.owner_options(user_required=True), opt.given_of)
@click.option("--importance", type=click.FloatRange(0, 1), help="How much it matters.")
@click.option("--keyword", "keywords", multiple=True, help="A keyword; repeatable.")
@click.option("--source", default="", help="Where it comes from: user, conversation, skill, system, inferred, other.")
@click.option("--summary", default="", help="A shorter form.")
@click.option("--learnt", "create_time", type=opt.past, metavar="TIME|AGE", help="When it was learnt.  [default: now]")
@opt.meta_option("statement")
@click.option("--detect", is_flag=True, help="Report the statements that conflict with it.")
@click.option("--resolve", is_flag=True, help="Resolve its conflicts by the rule that matches.")
@click.option("--rule", default="", help="The rule to apply, instead of the one that matches.")
@click.option("--dry-run", is_flag=True, help="With --resolve: only show the result, and save nothing.")
@opt.json_option
def learn(
    session: Session,
    /,
    text: str,
    *,
    whose: dict[str, Any],
    detect: bool,
    resolve: bool,
    rule: str,
    dry_run: bool,
    **given: Any,
) -> None:
    """Save TEXT as a statement about a user, unless it is already known; - reads standard input."""
    if detect and resolve:
        raise click.UsageError("--resolve does what --detect does, and more; choose one")
    if dry_run and not resolve:
        raise click.UsageError("--dry-run goes with --resolve")
    if dry_run:
        memory = semantic.SemanticMemory(text, **given, **whose)
        preview = session.client.conflicts.preview(memory, rule=rule)
        out.show(session, preview, f"would be: {_outcome(preview)}")
        return
    policies = semantic.ConflictPolicy
    policy = policies.RESOLVE if resolve else policies.DETECT if detect else policies.IGNORE
    answer = session.client.semantic.add(text, **given, **whose, conflict_policy=policy, rule=rule)
    out.show(session, answer, "\n".join([_outcome(answer), *map(conflict_line, answer.conflicts)]))
    out.note_cut(truncated=answer.truncated)


def _outcome(answer: semantic.SaveAnswer | conflicts.ResolutionPreview) -> str:
    """The outcome for a statement, and the decision about it."""
    memory_id, decision = answer.memory.memory_id if answer.memory else "", answer.decision
    if answer.duplicate:
        said = f"known already: {memory_id}"
    elif decision is None:
        said = f"learnt {memory_id}".rstrip()
    else:
        said = _decided(memory_id, decision)
    return f"{said}\n{decision_line(decision)}" if decision else said


def _decided(memory_id: str, decision: decisions.Decision) -> str:
    match decision.arbitration.action, decision.arbitration.winner:
        case decisions.ArbitrationAction.MERGE, _:
            return f"merged with {decision.existing_id} into {memory_id or 'a new one'}"
        case decisions.ArbitrationAction.KEEP, decisions.ArbitrationSide.EXISTING:
            return f"gave way to {decision.existing_id}"
        case decisions.ArbitrationAction.REJECT, _:
            return f"rejected, because of {decision.existing_id}"
    return f"learnt {memory_id}".rstrip() + f", in place of {decision.existing_id}"


@click.command()
@click.argument("query", type=opt.text_or_stdin)
@opt.limit_option(3, maximum=100)
@opt.mode_option
@click.option(
    "--min-similarity",
    type=click.FloatRange(0, 1),
    help="Leave out results below this similarity.  [default: 0.7 with --mode vector]",
)
@_which_statements
@opt.json_option
def similar(
    session: Session,
    query: str,
    *,
    limit: int,
    mode: str,
    min_similarity: float | None,
    which: dict[str, Any],
) -> None:
    """Find the statements that match QUERY best."""
    if min_similarity is not None and mode == values.SearchMode.KEYWORD:
        raise click.UsageError("--min-similarity compares meaning, so it does not go with --mode keyword")
    answer = session.client.semantic.search(query, limit=limit, mode=mode, min_similarity=min_similarity, **which)
    out.show_answer(session, answer, similarity_table)
    if not answer.results:
        note_unknown_user(session, which.get("user"), "statement")
    below = answer.diagnostics.filtered_by_threshold
    if below and not session.as_json and (min_similarity is not None or mode == values.SearchMode.VECTOR):
        out.note(f"below the least similarity: {below:,}")


@click.command()
@click.argument("memory_id", required=False)
@_which_statements
@click.option(
    "--superseded", "show_superseded", is_flag=True, help="Include statements that were merged or superseded."
)
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def known(
    session: Session,
    memory_id: str | None,
    *,
    which: dict[str, Any],
    show_superseded: bool,
    limit: int,
) -> None:
    """List statements in the order in which they were saved, or show the one with MEMORY_ID."""
    if memory_id is None:
        found = session.client.semantic.list(
            page_size=out.page_size_of(limit), show_superseded=show_superseded, **which
        )
        if not out.show_list(session, found, statement_table, limit=limit):
            note_unknown_user(session, which.get("user"), "statement")
        return
    if which or show_superseded:
        raise click.UsageError("name one statement, or say which ones with options; not both")
    out.show(session, session.client.semantic.get(memory_id), statement_sheet, soft_wrap=True)


@click.command()
@click.argument("memory_ids", nargs=-1, metavar="[MEMORY_ID]...")
@_which_statements
@opt.dry_run_option
@opt.yes_option
@opt.json_option
def unlearn(session: Session, /, memory_ids: tuple[str, ...], *, which: dict[str, Any], **how: Any) -> None:
    """Permanently remove statements: the named ones, or all that match, with the statements that they replaced."""
    if bool(memory_ids) == bool(which):
        raise click.UsageError("name statements, or say which with options such as --user; not both")
    out.remove_matching(
        session, session.client.semantic.delete_many, _number, **how, memory_ids=memory_ids or None, **which
    )


def _number(receipt: semantic.SemanticDeleteReceipt) -> str:
    more = f" and {receipt.superseded_count:,} superseded" if receipt.superseded_count else ""
    return counted(receipt.deleted_count, "statement") + more


@click.command("decisions")
@click.option("--user", default="", help="Only decisions of this user.")
@click.option("--memory", "memory_id", default="", metavar="MEMORY_ID", help="Only decisions about this statement.")
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def list_decisions(session: Session, user: str, memory_id: str, *, limit: int) -> None:
    """List decisions between statements and their reasons, newest first."""
    found = session.client.conflicts.list_decisions(user=user, memory_id=memory_id, page_size=out.page_size_of(limit))
    out.show_list(session, found, decision_table, limit=limit)


@click.command()
@click.argument("decision_id", required=False)
@click.option("--memory", "memory_id", metavar="MEMORY_ID", help="The decision that made this merged statement.")
@opt.json_option
def unmerge(session: Session, decision_id: str | None, memory_id: str | None) -> None:
    """Undo DECISION_ID: restore what it superseded, with the conflicts that this brings back, and remove the merged
    statement.
    """
    if bool(decision_id) == bool(memory_id):
        raise click.UsageError("name a decision, or a merged statement with --memory; `mnemon decisions` lists them")
    answer = session.client.conflicts.unmerge(decision_id or "", memory_id=memory_id or "")
    if session.as_json:
        echo(answer.to_json())
        return
    for restored_id in (*(memory.memory_id for memory in answer.restored), *answer.remaining_ids):
        tell_restored(session, restored_id)
    if answer.removed_id:
        echo(f"removed {answer.removed_id}")


def tell_restored(session: Session, memory_id: str) -> None:
    """Says that a statement is restored, and with which others it conflicts now."""
    echo(f"restored {memory_id}")
    for conflict in session.client.conflicts.detect(memory_id).conflicts:
        echo(conflict_line(conflict))


@click.command("index-status")
@opt.json_option
def index_status(session: Session) -> None:
    """Show the state of the index of statements, and whether the server limits writes."""
    out.show(session, session.client.semantic.status(), index_table)


# Tables


def similarity_table(answer: semantic.SimilarityAnswer) -> RenderableType:
    """The results of a search, each with the statement's text, its id and its tags."""
    columns = {"score": out.NUMBER, "similarity": out.NUMBER, "statement": out.REST}
    return out.record_table(
        columns, ([out.score(match.score), out.score(match.similarity), _lines(match.memory)] for match in answer)
    )


def statement_table(found: Iterable[semantic.SemanticMemory]) -> RenderableType:
    """Statements, each with its text, its id and its tags."""
    rows = ([out.short_time(memory.create_time), _lines(memory)] for memory in found)
    return out.record_table({"learnt": out.SHORT, "statement": out.REST}, rows, "nothing is known")


def statement_sheet(memory: semantic.SemanticMemory) -> RenderableType:
    """One statement: its fields, then its text."""
    names = [*semantic.TAGS, *(each.name for each in fields(memory) if each.name not in _SHOWN_APART)]
    rows = {_NAMES.get(name, name.replace("_", " ")): out.shown(getattr(memory, name)) for name in names}
    return out.record_sheet({"statement": memory.memory_id, **rows}, memory.metadata, memory.content)


def decision_table(found: Iterable[decisions.Decision]) -> RenderableType:
    """Decisions, each with its reason and the ids of what it is about."""
    rows = (
        [out.short_time(each.create_time), str(each.arbitration.action), Group(*_decision_lines(each))]
        for each in found
    )
    return out.record_table(
        {"decided": out.SHORT, "action": out.SHORT, "decision": out.REST}, rows, "nothing was decided"
    )


def _decision_lines(decision: decisions.Decision) -> Iterator[RenderableType]:
    arbitration = decision.arbitration
    yield out.plain(arbitration.reason)
    yield out.plain(
        f"{decision.decision_id}  rule={decision.rule}  strategy={arbitration.strategy}  "
        f"confidence={arbitration.confidence:.2f}",
        "dim",
    )
    yield out.plain("  ".join(f"{name}={getattr(decision, f'{name}_id') or 'none'}" for name in _IDS), "dim")
    if decision.revert_time:
        yield out.plain(f"undone {out.short_time(decision.revert_time)}", "dim")


def conflict_line(conflict: decisions.Conflict) -> str:
    """One conflict: with what, and why."""
    signals = ", ".join(f"{signal.type} {signal.score:.2f}" for signal in conflict.signals)
    return out.plain(f"conflicts with {conflict.memory_id}: {signals}").plain


def decision_line(decision: decisions.Decision) -> str:
    """Why it was decided so."""
    return out.plain(f"decision {decision.decision_id}: {decision.arbitration.reason}").plain


def index_table(status: semantic.SemanticIndexStatus) -> RenderableType:
    """The state of the semantic index."""
    starting = status.state == semantic.IndexState.STARTING
    return out.field_table(
        {
            "state": status.state,
            "message": status.message,
            "progress": f"{status.indexed_count:,} of {status.total_count:,} vectors" if starting else "",
            "statements": f"{status.record_count:,}, and {status.superseded_count:,} superseded",
            "capacity": f"{status.capacity:,}",
            "write latency": f"{status.write_latency_s * 1000:.1f} ms, at most "
            f"{status.write_latency_target_s * 1000:.1f} ms wanted",
            "memory": f"{out.mebibytes(status.memory_bytes)}, {status.graph_count:,} vectors in the graph",
            "snapshot": out.short_time(status.snapshot_time) or "none",
            "judge": f"failed {status.judge_failed_count:,} times" if status.judge_failed_count else "",
        }
    )


def _lines(memory: semantic.SemanticMemory) -> Group:
    tags = {name: getattr(memory, name) for name in semantic.TAGS}
    importance = "" if memory.importance is None else f"importance={memory.importance:g}"
    superseded = "superseded" if memory.superseded_by else ""
    return out.record_lines(memory.content, memory.memory_id, tags, importance, superseded)
