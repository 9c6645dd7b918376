"""The commands that learn and unlearn statements."""

import json
from datetime import datetime
from typing import Any

import click

from mnemon._cli.documents.read import note_cut
from mnemon._cli.memories.options import past
from mnemon._cli.options import json_option, meta_option
from mnemon._cli.semantic import render as statement_render
from mnemon._cli.semantic.options import which_statements_options, whose_options
from mnemon._cli.session import Session
from mnemon._terminal import echo
from mnemon._values import decisions, semantic
from mnemon._values import documents as values


@click.command()
@click.argument("text")
@whose_options
@click.option("--importance", type=click.FloatRange(0, 1), help="How much it matters.")
@click.option("--keyword", "keywords", multiple=True, help="A keyword; repeatable.")
@click.option("--source", default="", help="Where it comes from: user, conversation, skill, system, inferred, other.")
@click.option("--summary", default="", help="A shorter form.")
@click.option("--learnt", "create_time", type=past, metavar="TIME|AGE", help="When it was learnt.  [default: now]")
@meta_option("statement")
@click.option("--detect", is_flag=True, help="Report the statements that conflict with it.")
@click.option("--resolve", is_flag=True, help="Resolve its conflicts by the rule that matches.")
@click.option("--rule", default="", help="The rule to apply, instead of the one that matches.")
@click.option("--dry-run", is_flag=True, help="With --resolve: only show the result, and save nothing.")
@json_option
@click.pass_obj
def learn(
    session: Session,
    text: str,
    *,
    whose: dict[str, str],
    importance: float | None,
    keywords: tuple[str, ...],
    source: str,
    summary: str,
    create_time: datetime | None,
    metadata: dict[str, values.MetadataValue],
    detect: bool,
    resolve: bool,
    rule: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Save TEXT as a statement about a user, unless it is already known."""
    if detect and resolve:
        raise click.UsageError("--resolve does what --detect does, and more; choose one")
    if dry_run and not resolve:
        raise click.UsageError("--dry-run goes with --resolve")
    given: dict[str, Any] = {"importance": importance, "keywords": keywords, "source": source, "summary": summary}
    given |= {"create_time": create_time, "metadata": metadata, **whose}
    if dry_run:
        answer: Any = session.client.conflicts.preview(semantic.SemanticMemory(text, **given), rule=rule)
    else:
        policy = _policy(detect=detect, resolve=resolve)
        answer = session.client.semantic.add(text, **given, conflict_policy=policy, rule=rule)
    if as_json:
        echo(answer.to_json())
    else:
        _say(answer.memory, answer.decision, duplicate=answer.duplicate, dry_run=dry_run)
        for conflict in getattr(answer, "conflicts", ()):
            echo(statement_render.conflict_line(conflict))
    note_cut(truncated=getattr(answer, "truncated", False))


def _policy(*, detect: bool, resolve: bool) -> semantic.ConflictPolicy:
    if resolve:
        return semantic.ConflictPolicy.RESOLVE
    return semantic.ConflictPolicy.DETECT if detect else semantic.ConflictPolicy.IGNORE


def _say(
    memory: semantic.SemanticMemory | None, decision: decisions.Decision | None, *, duplicate: bool, dry_run: bool
) -> None:
    memory_id = memory.memory_id if memory else ""
    echo(("would be: " if dry_run else "") + _outcome(memory_id, decision, duplicate=duplicate))
    if decision:
        echo(statement_render.decision_line(decision))


def _outcome(memory_id: str, decision: decisions.Decision | None, *, duplicate: bool) -> str:
    if duplicate:
        return f"known already: {memory_id}"
    if decision is None:
        return f"learnt {memory_id}".rstrip()
    match decision.arbitration.action, decision.arbitration.winner:
        case decisions.ArbitrationAction.MERGE, _:
            return f"merged with {decision.existing_id} into {memory_id or 'a new one'}"
        case decisions.ArbitrationAction.KEEP, decisions.ArbitrationSide.EXISTING:
            return f"gave way to {decision.existing_id}"
        case decisions.ArbitrationAction.REJECT, _:
            return f"rejected, because of {decision.existing_id}"
    return f"learnt {memory_id}".rstrip() + f", in place of {decision.existing_id}"


@click.command()
@click.argument("memory_ids", nargs=-1, metavar="[MEMORY_ID]...")
@which_statements_options
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def unlearn(
    session: Session,
    memory_ids: tuple[str, ...],
    *,
    which: dict[str, Any],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Permanently remove statements: the named ones, or all that match, with the statements that they replaced."""
    if bool(memory_ids) == bool(which):
        raise click.UsageError("name statements, or say which with options such as --user; not both")
    receipt = session.client.semantic.delete_many(memory_ids or None, dry_run=True, **which)
    if not dry_run and receipt.deleted_count:
        if not yes:
            click.confirm(f"Remove {_number(receipt)} for good?", abort=True, err=True)
        receipt = session.client.semantic.delete_many(memory_ids or None, **which)
    if as_json:
        echo(json.dumps({**receipt.to_dict(), "dry_run": dry_run}))
    else:
        echo(f"{_number(receipt)} {'would be removed' if dry_run else 'removed'}")


def _number(receipt: semantic.SemanticDeleteReceipt) -> str:
    statements = f"{receipt.deleted_count:,} statement{'' if receipt.deleted_count == 1 else 's'}"
    return statements + (f" and {receipt.superseded_count:,} superseded" if receipt.superseded_count else "")
