"""The commands for facts."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from mnemon._cli import options as opt
from mnemon._cli import output as out
from mnemon._cli.json_lines import FACT_LINES, read_records, store_lines
from mnemon._cli.session import Session
from mnemon._values import documents as values
from mnemon._values import facts as fact_values
from mnemon._values.filters import Condition, Filter
from mnemon.shared.namespaces import namespace_text
from mnemon.shared.terminal import counted, echo

_SHOWN_CHARACTERS_MAX = 100


# Options


def _comparison(text: str) -> Filter:
    """`KEY OPERATOR VALUE`, such as score>=3: the value has the type that it looks like."""
    key, operator, value = opt.split_comparison(text, "category=drinks, score>=3 or content~tea")
    return Condition(f"value.{key}", operator, (opt.compared(operator, value),))


def _which_facts(command: opt.Command) -> opt.Command:
    """`--below` and `--where`; the command gets `subtree` and `where`."""
    command = click.option(
        "--where",
        "where",
        type=_comparison,
        metavar="COMPARISON",
        multiple=True,
        callback=lambda context, parameter, given: opt.joined(given) if given else None,
        help="Only facts for which this is true: category=drinks, score>=3, content~tea; repeatable. != is also true "
        "of those without the key.",
    )(command)
    return click.option("--below", "subtree", is_flag=True, help="Include the namespaces below it.")(command)


def _namespace(*, required: bool) -> Callable[[opt.Command], opt.Command]:
    """NAMESPACE; the command gets `namespace`, without one ()."""
    return click.argument(
        "namespace", required=required, type=opt.labels, callback=lambda context, parameter, value: value or ()
    )


def _value(text: str) -> dict[str, Any]:
    """The JSON object of the text, or an object with the text as content; other JSON is an error."""
    found = opt.text_or_stdin(text)
    return opt.json_object(found) if found.lstrip()[:1] in ("{", "[") else {"content": found}


def _ttl(text: str) -> timedelta:
    found = opt.moment(text)
    if isinstance(found, timedelta):
        return found
    raise click.BadParameter(f"{text!r} is not a length of time, such as 12h or 30d")


# Commands


@click.group()
def facts() -> None:
    """Store JSON objects under keys of namespaces, as the memory tools do. A namespace is written as user.ada."""


@facts.command()
@_namespace(required=False)
@click.argument("value", required=False, type=_value)
@click.option("--key", help="The key; if it is missing or empty, the server chooses one.")
@opt.file_option("Store")
@click.option(
    "--mode",
    type=opt.choice_of(fact_values.PutMode),
    default=fact_values.PutMode.UPSERT.value,
    show_default=True,
    help="Whether a fact with this key may, must not, or must exist.",
)
@click.option(
    "--index", "index", multiple=True, metavar="PATH", help="Make this part of the value searchable; repeatable."
)
@click.option("--no-index", is_flag=True, help="Make no part of the value searchable.")
@click.option("--ttl", type=_ttl, metavar="AGE", help="How long it lives: 12h, 30d.")
@opt.collected("source", opt.text_options(opt.ORIGIN_HELP), opt.given_of)
@opt.meta_option("fact")
@opt.json_option
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
    source: dict[str, Any],
    metadata: dict[str, values.MetadataValue],
) -> None:
    """Store VALUE in NAMESPACE, replacing the fact with its key, or store many with --file.

    VALUE is a JSON object, or a text, which is stored as {"content": "..."}; - reads standard input. A line of the
    file is a JSON text in quotes, or what `list --json` prints. NAMESPACE and the options apply if a line does not set
    them.
    """
    if (value is None) == (path is None) or (path is not None and key):
        raise click.UsageError("give a NAMESPACE and the VALUE, with --key or without, or --file with many; not both")
    if index and no_index:
        raise click.UsageError("--index and --no-index contradict each other")
    searched: fact_values.FactIndex = False if no_index else index or None
    store = session.client.facts
    if path is not None:
        fields = {"namespace": namespace, "index": searched, "ttl": ttl, **source}
        lines = read_records(path, FACT_LINES, fields, metadata)
        with store_lines(session, path, "storing", ("stored",)) as report:
            for result in store.put_many(report.items_of(lines), mode=mode):
                report.show("stored", {"key": result.key}, result.error)
    elif value is not None:
        receipt = store.put(namespace, key, value, metadata=metadata, index=searched, ttl=ttl, mode=mode, **source)
        stored = out.one_line(json.dumps(value, ensure_ascii=False), _SHOWN_CHARACTERS_MAX).plain
        out.show(session, receipt, f"stored {namespace_text(namespace)} {receipt.key}: {stored}")


@facts.command()
@_namespace(required=True)
@click.argument("key")
@click.option("--versions", is_flag=True, help="Include its earlier versions.")
@click.option("--renew", "renew_ttl", is_flag=True, help="Restart its ttl.")
@opt.json_option
def get(
    session: Session,
    namespace: fact_values.Namespace,
    key: str,
    *,
    versions: bool,
    renew_ttl: bool,
) -> None:
    """Show the fact under KEY of NAMESPACE."""
    if renew_ttl:
        session.client.facts.renew([(namespace, key)])
    fact = session.client.facts.get(namespace, key, versions=versions)
    out.show(session, fact, fact_sheet, soft_wrap=True)


@facts.command()
@click.argument("query", type=opt.text_or_stdin)
@_namespace(required=False)
@_which_facts
@opt.limit_option(10, maximum=1000)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="How many of the best results to skip.")
@opt.mode_option
@opt.min_score_option
@opt.min_trust_option
@opt.json_option
def search(session: Session, /, query: str, namespace: fact_values.Namespace, *, subtree: bool, **how: Any) -> None:
    """Find the facts most relevant to QUERY, in NAMESPACE or in all namespaces."""
    answer = session.client.facts.search(query, namespace=namespace, subtree=subtree or not namespace, **how)
    out.show_answer(session, answer, match_table)


@facts.command("list")
@_namespace(required=False)
@_which_facts
@click.option("--versions", is_flag=True, help="Include their earlier versions, in JSON.")
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def list_facts(
    session: Session,
    /,
    namespace: fact_values.Namespace,
    *,
    subtree: bool,
    limit: int,
    **how: Any,
) -> None:
    """List the facts of NAMESPACE, or of all namespaces, in the order in which they were first stored."""
    chosen = {"subtree": subtree or not namespace, "page_size": out.page_size_of(limit), **how}
    out.show_list(session, session.client.facts.list(namespace, **chosen), fact_table, limit=limit)


def _labels_option(name: str, where: str) -> Callable[[opt.Command], opt.Command]:
    text = f"Only namespaces that {where} with these labels; * is any label."
    return click.option(f"--{name}", type=opt.labels, metavar="LABELS", help=text)


@facts.command()
@_labels_option("prefix", "begin")
@_labels_option("suffix", "end")
@click.option(
    "--depth",
    "max_depth",
    type=click.IntRange(min=0),
    default=0,
    help="Show at most this many labels of each namespace.",
)
@opt.limit_option(out.LIST_LIMIT)
@opt.json_option
def namespaces(session: Session, /, *, limit: int, **which: Any) -> None:
    """List the namespaces that hold facts."""
    found = session.client.facts.list_namespaces(page_size=out.page_size_of(limit), **opt.given_of(which))
    out.show_list(session, found, namespace_list, limit=limit, soft_wrap=True)


@facts.command()
@_namespace(required=True)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@_which_facts
@opt.dry_run_option
@opt.yes_option
@opt.json_option
def delete(session: Session, /, namespace: fact_values.Namespace, keys: tuple[str, ...], **which: Any) -> None:
    """Permanently remove facts of NAMESPACE: those under the KEYs, or all that the options match."""
    if not keys:
        out.remove_matching(
            session,
            session.client.facts.delete_many,
            lambda receipt: counted(receipt.deleted_count, "fact"),
            number_only=True,
            namespace=namespace,
            **which,
        )
    elif which["subtree"] or which["where"] is not None or which["dry_run"]:
        raise click.UsageError("a KEY names one fact of NAMESPACE; --below, --where and --dry-run go without")
    else:
        _delete_each(session, namespace, keys)


def _delete_each(session: Session, namespace: fact_values.Namespace, keys: tuple[str, ...]) -> None:
    missing = 0
    for key in keys:
        receipt = session.client.facts.delete(namespace, key, allow_missing=True)
        missing += receipt.outcome is values.WriteOutcome.MISSING
        if session.as_json:
            echo(receipt.to_json())
        elif receipt.outcome is values.WriteOutcome.MISSING:
            echo(f"Error: {namespace_text(namespace)} has no fact {key!r}", err=True)
        else:
            echo(f"deleted {namespace_text(namespace)} {key}")
    if missing:
        raise SystemExit(1)


# Tables


def match_table(answer: fact_values.FactAnswer) -> RenderableType:
    """The facts that were found, each with its value, its namespace and its key."""
    return out.record_table(
        {"score": out.NUMBER, "fact": out.REST}, ([out.score(each.score), _lines(each.fact)] for each in answer)
    )


def fact_table(found: Iterable[fact_values.Fact]) -> RenderableType:
    """Facts, each with its value, its namespace and its key."""
    rows = ([out.short_time(fact.update_time), _lines(fact)] for fact in found)
    return out.record_table({"updated": out.SHORT, "fact": out.REST}, rows, "no facts")


def fact_sheet(fact: fact_values.Fact) -> RenderableType:
    """One fact: its fields, its value, and its earlier versions, if it has any."""
    fields = {
        "namespace": namespace_text(fact.namespace),
        "key": fact.key,
        "revision": fact.revision,
        "created": out.short_time(fact.create_time),
        "updated": out.short_time(fact.update_time),
        "expires": out.short_time(fact.expire_time),
        "searched": "nothing" if fact.index is False else ", ".join(fact.index or ()),
    }
    parts = [out.field_table(fields), out.field_table(fact.metadata), Text(), out.plain(_json(fact.value, indent=2))]
    for version in fact.versions:
        head = f"revision {version.revision}, {out.short_time(version.update_time)}"
        parts += [Text(), out.plain(head, "bold"), out.plain(_json(version.value, indent=2))]
    return Group(*parts)


def namespace_list(found: Iterable[fact_values.Namespace]) -> RenderableType:
    """Namespaces, one per line."""
    return Group(*(out.plain(namespace_text(namespace)) for namespace in found))


def _lines(fact: fact_values.Fact) -> Group:
    content = fact.value.get("content")
    alone = content if isinstance(content, str) and len(fact.value) == 1 else None
    words = out.one_line(_json(fact.value) if alone is None else alone)
    return Group(words, out.plain(f"{namespace_text(fact.namespace)}  {fact.key}", "dim"))


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
