"""The commands for facts."""

import json
from datetime import timedelta
from itertools import islice
from typing import Any

import click

from mnemon._cli import render
from mnemon._cli.documents.read import LIST_LIMIT, note_cut, note_more, note_relevance, page_size_of
from mnemon._cli.facts import render as fact_render
from mnemon._cli.facts.lines import read_facts
from mnemon._cli.facts.options import json_object, namespace_argument, which_facts_options
from mnemon._cli.json_lines import LineReport
from mnemon._cli.memories.options import moment
from mnemon._cli.options import json_option, labels, limit_option, meta_option, mode_option
from mnemon._cli.progress import BulkProgress, count_lines
from mnemon._cli.session import Session
from mnemon._namespaces import namespace_text
from mnemon._terminal import echo
from mnemon._values import documents as values
from mnemon._values import facts as fact_values

_SHOWN_CHARACTERS_MAX = 100


@click.group()
def facts() -> None:
    """Store JSON objects under keys of namespaces, as the memory tools do. A namespace is written as user.ada."""


def _value(text: str) -> dict[str, Any]:
    """The JSON object of the text, or an object with the text as content; other JSON is an error."""
    if text.lstrip()[:1] in ("{", "["):
        return json_object(text)
    return {"content": text}


def _ttl(text: str) -> timedelta:
    found = moment(text)
    if isinstance(found, timedelta):
        return found
    raise click.BadParameter(f"{text!r} is not a length of time, such as 12h or 30d")


@facts.command()
@namespace_argument(required=False)
@click.argument("value", required=False, type=_value)
@click.option("--key", help="The key; if it is missing or empty, the server chooses one.")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Store the contents of this file of JSON lines; - is standard input.",
)
@click.option(
    "--mode",
    type=click.Choice([each.value for each in fact_values.PutMode]),
    default=fact_values.PutMode.UPSERT.value,
    show_default=True,
    help="Whether a fact with this key may, must not, or must exist.",
)
@click.option(
    "--index", "index", multiple=True, metavar="PATH", help="Make this part of the value searchable; repeatable."
)
@click.option("--no-index", is_flag=True, help="Make no part of the value searchable.")
@click.option("--ttl", type=_ttl, metavar="AGE", help="How long it lives: 12h, 30d.")
@meta_option("fact")
@json_option
@click.pass_obj
def put(
    session: Session,
    namespace: fact_values.Namespace,
    value: dict[str, Any] | None,
    key: str | None,
    path: str | None,
    mode: str,
    index: tuple[str, ...],
    ttl: timedelta | None,
    *,
    no_index: bool,
    metadata: dict[str, values.MetadataValue],
    as_json: bool,
) -> None:
    """Store VALUE in NAMESPACE, replacing the fact with its key, or store many with --file.

    VALUE is a JSON object, or a text, which is stored as {"content": "..."}. A line of the file is a JSON text in
    quotes, or what `list --json` prints. NAMESPACE and the options apply if a line does not set them.
    """
    if (value is None) == (path is None) or (path is not None and key):
        raise click.UsageError("give a NAMESPACE and the VALUE, with --key or without, or --file with many; not both")
    if index and no_index:
        raise click.UsageError("--index and --no-index contradict each other")
    searched: fact_values.FactIndex = False if no_index else index or None
    if path is not None:
        fields = {"namespace": namespace, "index": searched, "ttl": ttl}
        _put_file(session, path, fields, metadata, mode=mode, as_json=as_json)
    elif value is not None:
        receipt = session.client.facts.put(namespace, key, value, metadata=metadata, index=searched, ttl=ttl, mode=mode)
        shown = render.one_line(json.dumps(value, ensure_ascii=False), _SHOWN_CHARACTERS_MAX).plain
        echo(receipt.to_json() if as_json else f"stored {namespace_text(namespace)} {receipt.key}: {shown}")


def _put_file(
    session: Session,
    path: str,
    fields: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
    *,
    mode: str,
    as_json: bool,
) -> None:
    with BulkProgress(session.error_console, "storing", count_lines(path), quiet=as_json) as progress:
        report = LineReport(session, progress, ("stored",), as_json=as_json)
        for result in session.client.facts.put_many(report.items_of(read_facts(path, fields, metadata)), mode=mode):
            report.show("stored", {"key": result.key}, result.error)
    report.show_summary()


@facts.command()
@namespace_argument(required=True)
@click.argument("key")
@click.option("--versions", is_flag=True, help="Include its earlier versions.")
@click.option("--renew", "renew_ttl", is_flag=True, help="Restart its ttl.")
@json_option
@click.pass_obj
def get(
    session: Session,
    namespace: fact_values.Namespace,
    key: str,
    *,
    versions: bool,
    renew_ttl: bool,
    as_json: bool,
) -> None:
    """Show the fact under KEY of NAMESPACE."""
    if renew_ttl:
        session.client.facts.renew([(namespace, key)])
    fact = session.client.facts.get(namespace, key, versions=versions)
    if as_json:
        echo(fact.to_json())
    else:
        session.console.print(fact_render.fact_sheet(fact), soft_wrap=True)


@facts.command()
@click.argument("query")
@namespace_argument(required=False)
@which_facts_options
@limit_option(10, maximum=1000)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many of the best results to skip.")
@mode_option
@click.option("--min-score", type=click.FloatRange(0, 1), default=0.0, help="Leave out results below this score.")
@json_option
@click.pass_obj
def search(
    session: Session, /, query: str, namespace: fact_values.Namespace, *, subtree: bool, as_json: bool, **how: Any
) -> None:
    """Find the facts most relevant to QUERY, in NAMESPACE or in all namespaces."""
    answer = session.client.facts.search(query, namespace=namespace, subtree=subtree or not namespace, **how)
    note_cut(truncated=answer.truncated)
    if as_json:
        echo(answer.to_json())
    else:
        note_relevance(answer)
        session.console.print(fact_render.match_table(answer))


@facts.command("list")
@namespace_argument(required=False)
@which_facts_options
@click.option("--versions", is_flag=True, help="Include their earlier versions, in JSON.")
@limit_option(LIST_LIMIT)
@json_option
@click.pass_obj
def list_facts(
    session: Session,
    namespace: fact_values.Namespace,
    *,
    subtree: bool,
    where: dict[str, Any] | None,
    versions: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List the facts of NAMESPACE, or of all namespaces, in the order in which they were first stored."""
    found = session.client.facts.list(
        namespace,
        subtree=subtree or not namespace,
        where=where,
        versions=versions,
        page_size=page_size_of(limit),
    )
    if as_json:
        for fact in islice(found, limit or None):
            echo(fact.to_json())
    else:
        session.console.print(fact_render.fact_table(islice(found, limit or None)))
    note_more(limit, next(found, None) if limit else None)


@facts.command()
@click.option(
    "--prefix",
    type=labels,
    metavar="LABELS",
    help="Only namespaces that begin with these labels; * is any label.",
)
@click.option(
    "--suffix",
    type=labels,
    metavar="LABELS",
    help="Only namespaces that end with these labels; * is any label.",
)
@click.option(
    "--depth",
    "max_depth",
    type=click.IntRange(min=0),
    default=0,
    help="Show at most this many labels of each namespace.",
)
@limit_option(LIST_LIMIT)
@json_option
@click.pass_obj
def namespaces(
    session: Session,
    prefix: tuple[str, ...] | None,
    suffix: tuple[str, ...] | None,
    max_depth: int,
    limit: int,
    *,
    as_json: bool,
) -> None:
    """List the namespaces that hold facts."""
    found = session.client.facts.list_namespaces(
        prefix=prefix or (), suffix=suffix or (), max_depth=max_depth, page_size=page_size_of(limit)
    )
    if as_json:
        for namespace in islice(found, limit or None):
            echo(json.dumps(namespace, ensure_ascii=False))
    else:
        for line in fact_render.namespace_lines(islice(found, limit or None)):
            session.console.print(line, soft_wrap=True)
    note_more(limit, next(found, None) if limit else None)


@facts.command()
@namespace_argument(required=True)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@which_facts_options
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def delete(
    session: Session,
    namespace: fact_values.Namespace,
    keys: tuple[str, ...],
    *,
    subtree: bool,
    where: dict[str, Any] | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Permanently remove facts of NAMESPACE: those under the KEYs, or all that the options match."""
    if keys:
        if subtree or where or dry_run:
            raise click.UsageError("a KEY names one fact of NAMESPACE; --below, --where and --dry-run go without")
        _delete_each(session, namespace, keys, as_json=as_json)
        return
    which: dict[str, Any] = {"subtree": subtree, "where": where}
    count = session.client.facts.delete_many(namespace, dry_run=True, **which).deleted_count
    if not dry_run and count:
        if not yes:
            click.confirm(f"Remove {_number(count)} for good?", abort=True, err=True)
        count = session.client.facts.delete_many(namespace, **which).deleted_count
    if as_json:
        echo(json.dumps({"deleted_count": count, "dry_run": dry_run}))
    else:
        echo(f"{_number(count)} {'would be removed' if dry_run else 'removed'}")


def _delete_each(session: Session, namespace: fact_values.Namespace, keys: tuple[str, ...], *, as_json: bool) -> None:
    missing = 0
    for key in keys:
        receipt = session.client.facts.delete(namespace, key, allow_missing=True)
        missing += receipt.outcome is values.WriteOutcome.MISSING
        if as_json:
            echo(receipt.to_json())
        elif receipt.outcome is values.WriteOutcome.MISSING:
            echo(f"Error: {namespace_text(namespace)} has no fact {key!r}", err=True)
        else:
            echo(f"deleted {namespace_text(namespace)} {key}")
    if missing:
        raise SystemExit(1)


def _number(count: int) -> str:
    return f"{count:,} fact{'' if count == 1 else 's'}"
