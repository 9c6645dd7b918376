"""The command that asks all kinds of records at once."""

from typing import Any

import click
from rich.console import Group, RenderableType

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.session import Session
from mnemon._cli.unknown_users import note_unknown_user
from mnemon._messages.recall import RECALLED
from mnemon._values.documents import SCOPE_FIELDS
from mnemon._values.recall import RecallAnswer, RecallItem
from mnemon.shared.namespaces import namespace_text
from mnemon.shared.terminal import echo

_whose = opt.collected(
    "which",
    {
        **opt.owner_options(),
        "namespace": click.option(
            "--namespace",
            type=opt.labels,
            metavar="LABEL.LABEL",
            help="The facts in and below this namespace.",
        ),
        **opt.span_options("records"),
    },
    opt.given_of,
)


@click.command()
@click.argument("query", type=opt.text_or_stdin)
@_whose
@click.option("--kind", "kinds", type=opt.choice_of(RECALLED), multiple=True, help="Only this kind; repeatable.")
@opt.limit_option(None, maximum=100)
@click.option("--max-tokens", type=click.IntRange(1, 1_000_000), help="Maximum size of the context.  [default: 2000]")
@click.option("--tokenizer", default="", metavar="NAME", help="How its tokens are counted.  [default: utf8/4]")
@click.option(
    "--min-relevance", type=click.FloatRange(0, 1), default=0.0, help="Leave out results below this relevance."
)
@click.option("--min-confidence", type=click.FloatRange(0, 1), help="Leave out memories below it.  [default: 0.3]")
@opt.min_trust_option
@opt.as_of_option
@click.option("--context", "only_context", is_flag=True, help="Print only the text for a prompt.")
@opt.json_option
def recall(session: Session, /, query: str, *, which: dict[str, Any], only_context: bool, **how: Any) -> None:
    """Find what matters for QUERY among documents, memories, facts, statements and events."""
    answer = session.client.recall(query, time_zone=session.time_zone, **which, **how)
    out.note_cut(truncated=answer.truncated)
    if session.as_json:
        echo(answer.to_json())
        return
    out.note_relevance(answer)
    if not answer.results:
        note_unknown_user(session, which.get("user"))
    for each in answer.diagnostics:
        if each.skipped and (how["kinds"] or not answer.results):
            out.note(f"{each.kind}: not searched: {each.skipped}")
    if answer.results and not answer.context and not answer.nothing_relevant:
        out.note(f"not even one result fits into {how['max_tokens']} tokens; raise --max-tokens")
    if only_context:
        echo(answer.context)
    else:
        session.console.print(recall_table(answer))


def recall_table(answer: RecallAnswer) -> RenderableType:
    """The records that were found, each with its text, kind, id and owner."""
    columns = {"score": out.NUMBER, "kind": out.SHORT, "record": out.REST}
    rows = [(out.score(item.score), item) for item in answer] + [("", turn) for turn in answer.neighbours]
    return out.record_table(columns, ([score, out.kind_of(item.kind), _lines(item)] for score, item in rows))


def _lines(item: RecallItem) -> Group:
    names = {name: getattr(item.scope, name) for name in SCOPE_FIELDS}
    tags = {"namespace": namespace_text(item.record.namespace), "type": item.type, "source": item.source, **names}
    ends = (item.passage_start > 0, item.passage_start + len(item.passage_text) < len(item.content))
    before, after = ("…" if is_cut else "" for is_cut in ends)
    shown = out.lines(f"{before}{item.passage_text.strip()}{after}")
    return Group(shown, out.record_line(item.id, tags, out.short_time(item.time)))
