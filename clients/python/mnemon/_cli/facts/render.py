"""Formats facts for people."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._cli.render import field_table, one_line, plain, short_time
from mnemon._namespaces import namespace_text
from mnemon._values import facts

_VALUE_CHARACTERS_MAX = 400


def match_table(answer: facts.FactAnswer) -> RenderableType:
    """The facts that were found, each with its value, its namespace and its key."""
    if not answer:
        return Text("nothing found")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("fact", ratio=1, overflow="fold")
    for match in answer:
        score = "" if match.score is None else f"{match.score:.3f}"
        table.add_row(score, Group(_first_words(match.fact), _name(match.fact)))
    return table


def fact_table(found: Iterable[facts.Fact]) -> RenderableType:
    """Facts, each with its value, its namespace and its key."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("updated", no_wrap=True)
    table.add_column("fact", ratio=1, overflow="fold")
    for fact in found:
        table.add_row(short_time(fact.update_time), Group(_first_words(fact), _name(fact)))
    return table if table.row_count else Text("no facts")


def fact_sheet(fact: facts.Fact) -> RenderableType:
    """One fact: its fields, its value, and its earlier versions, if it has any."""
    fields = {
        "namespace": namespace_text(fact.namespace),
        "key": fact.key,
        "revision": fact.revision,
        "created": short_time(fact.create_time),
        "updated": short_time(fact.update_time),
        "expires": short_time(fact.expire_time),
        "searched": _searched(fact.index),
    }
    parts = [field_table(fields), field_table(fact.metadata), Text(), plain(_json(fact.value, indent=2))]
    for version in fact.versions:
        head = f"revision {version.revision}, {short_time(version.update_time)}"
        parts += [Text(), plain(head, "bold"), plain(_json(version.value, indent=2))]
    return Group(*parts)


def namespace_lines(found: Iterable[facts.Namespace]) -> Iterable[Text]:
    """Namespaces, one per line."""
    return (plain(namespace_text(namespace)) for namespace in found)


def _first_words(fact: facts.Fact) -> Text:
    content = fact.value.get("content")
    alone = content if isinstance(content, str) and len(fact.value) == 1 else None
    return one_line(_json(fact.value) if alone is None else alone, _VALUE_CHARACTERS_MAX)


def _name(fact: facts.Fact) -> Text:
    return plain(f"{namespace_text(fact.namespace)}  {fact.key}", "dim")


def _searched(index: facts.FactIndex) -> str:
    if index is False:
        return "nothing"
    return ", ".join(index) if index else ""


def _json(value: Mapping[str, Any], indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
