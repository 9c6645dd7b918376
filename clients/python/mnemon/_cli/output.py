"""Shows answers: tables for people, as wide as the terminal and without control characters, and JSON for programs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._cli.session import Session
from mnemon._local_time import exact_time, in_zone
from mnemon._values.archive import RecordKind
from mnemon._values.documents import JsonValue, RelevanceOfBest
from mnemon._values.filters import AllOf, Condition, F, Operator, as_fact_filter
from mnemon._values.recall import RecallAnswer
from mnemon.shared.errors import InvalidOperationError, NotFoundError
from mnemon.shared.terminal import counted, echo, printable

LIST_LIMIT = 100
_PAGE_SIZE_MAX = 1000
_CONTENT_CHARACTERS_MAX = 400

_Item = TypeVar("_Item")
_Receipt = TypeVar("_Receipt", bound=JsonValue)

SHORT: Mapping[str, Any] = {"no_wrap": True}
NUMBER: Mapping[str, Any] = {"justify": "right", "no_wrap": True}
FOLDED: Mapping[str, Any] = {"overflow": "fold"}
REST: Mapping[str, Any] = {"ratio": 1, "overflow": "fold"}
"""The column that takes the rest of the width."""

# Texts and tables


def plain(text: str, style: str = "") -> Text:
    """The text with control characters made visible, except for line breaks and tabs."""
    return Text(printable(text), style=style)


def one_line(text: str, characters_max: int = _CONTENT_CHARACTERS_MAX) -> Text:
    """The text with white space folded, cut with an ellipsis."""
    folded = " ".join(text.split())
    return plain(folded if len(folded) <= characters_max else folded[: characters_max - 1].rstrip() + "…")


def lines(text: str) -> Text:
    """The text in its lines, without blank ones."""
    return plain("\n".join(line.rstrip() for line in text.splitlines() if line.strip()))


def short_time(time: datetime | None) -> str:
    """A time to the minute, in the zone of this machine; empty if it is None."""
    return in_zone(time).replace(tzinfo=None).isoformat(" ", "minutes") if time else ""


def mebibytes(number: int) -> str:
    """A number of bytes, to read."""
    return f"{number / (1 << 20):,.1f} MiB"


def shown(value: object) -> str:
    """The value of a field, to read; empty if there is no value."""
    match value:
        case None:
            return ""
        case datetime():
            return short_time(value)
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(map(str, value))
    return str(value)


def score(value: float | None) -> str:
    """A score for a reader; empty without one."""
    return "" if value is None else f"{value:.3f}"


def record_table(
    columns: Mapping[str, Mapping[str, Any]], rows: Iterable[Sequence[Any]], nothing: str = "nothing found"
) -> RenderableType:
    """Rows under names of columns; without rows, a sentence. Texts in a row are made printable."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, look in columns.items():
        table.add_column(name, **look)
    for row in rows:
        table.add_row(*(plain(each) if isinstance(each, str) else each for each in row))
    return table if table.row_count else Text(nothing)


def record_lines(content: str, record_id: str, tags: Mapping[str, object], *marks: str) -> Group:
    """The first words of a record, and its id with the tags that are set."""
    return Group(one_line(content), record_line(record_id, tags, *marks))


def record_line(record_id: str, tags: Mapping[str, object], *marks: str) -> Text:
    """The id of a record with the tags that are set."""
    said = [f"{name}={value}" for name, value in tags.items() if value]
    return plain("  ".join([record_id, *said, *filter(None, marks)]), "dim")


def record_sheet(fields: Mapping[str, object], metadata: Mapping[str, object], content: str) -> Group:
    """One record: its fields, then its text."""
    return Group(field_table(fields), field_table(metadata), Text(), plain(content))


def field_table(fields: Mapping[str, object]) -> RenderableType:
    """Names and values, one per line; empty values are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value != "":
            table.add_row(plain(name), plain(str(value)))
    return table


def removals(pending: int, out_of_reach: int) -> str:
    """Removed data that is still in files, as a line; empty if there is no such data."""
    said = [f"{pending:,}"] if pending else []
    return ", ".join([*said, *([f"{out_of_reach:,} in files of ChromaDB's server"] if out_of_reach else [])])


# Answers


def show(
    session: Session, answer: _Receipt, said: Callable[[_Receipt], RenderableType] | str, *, soft_wrap: bool = False
) -> None:
    """An answer as JSON, or else as a table or with a sentence."""
    if session.as_json:
        echo(answer.to_json())
    elif isinstance(said, str):
        echo(said)
    else:
        session.console.print(said(answer), soft_wrap=soft_wrap)


def show_list(
    session: Session,
    found: Iterator[_Item],
    render: Callable[[Iterable[_Item]], RenderableType],
    *,
    limit: int,
    soft_wrap: bool = False,
) -> bool:
    """The items as JSON lines, or as a table; says so if there are more than the limit. Returns whether it has any."""
    head = [*islice(found, 1)]
    first = islice(chain(head, found), limit or None)
    if session.as_json:
        for each in first:
            echo(each.to_json() if isinstance(each, JsonValue) else json.dumps(each, ensure_ascii=False))
    else:
        session.console.print(render(first), soft_wrap=soft_wrap)
    if limit and next(found, None) is not None:
        note(f"there are more than {limit:,}; --limit 0 shows all")
    return bool(head)


def show_lines(session: Session, found: Sequence[JsonValue], line_of: Callable[[Any], str], nothing: str = "") -> None:
    """The items as one JSON list, or one line each; without any, standard error says `nothing`."""
    if session.as_json:
        echo(json.dumps([each.to_dict() for each in found], ensure_ascii=False))
    elif not found and nothing:
        echo(nothing, err=True)
    else:
        for each in found:
            echo(line_of(each), is_line=True)


def show_answer(session: Session, answer: Any, render: Callable[[Any], RenderableType]) -> None:
    """The answer of a search, with notes about what it lacks."""
    note_cut(truncated=answer.truncated)
    if session.as_json:
        echo(answer.to_json())
        return
    note_relevance(answer)
    if degraded := getattr(answer.diagnostics, "degraded", ""):
        note(f"the vector database was not asked: {degraded}; the answer is complete")
    session.console.print(render(answer))


def page_size_of(limit: int) -> int:
    """The page size for a list of this many, 0 for all: one more shows whether there are more."""
    return min(limit + 1, _PAGE_SIZE_MAX) if limit else _PAGE_SIZE_MAX


def note_cut(*, truncated: bool) -> None:
    """Prints that an answer ended because of its size."""
    if truncated:
        note("more was found than one answer holds, which is 3 MiB; ask for less of it, or more precisely")


def note_relevance(answer: RelevanceOfBest | RecallAnswer) -> None:
    """Prints that a search found nothing that is likely to have to do with its query."""
    if answer.nothing_relevant and answer.best_relevance:
        note(f"nothing relevant (best {answer.best_relevance:.2f})")


def note(line: str) -> None:
    """Prints a note about an answer to standard error."""
    echo(f"note: {line}", err=True)


def kind_of(record: str) -> str:
    """A kind of records as commands name it."""
    return "statement" if record == RecordKind.SEMANTIC else str(record)


def counted_kinds(counts: Mapping[str, int]) -> str:
    """Numbers of records by kind, to read: "1 document, 2 memories"; "nothing" without any."""
    named = ((kind_of(kind), count) for kind, count in counts.items() if count)
    return ", ".join(counted(count, name, "memories" if name == "memory" else "") for name, count in named) or "nothing"


# Removals


def do_each(session: Session, call: Callable[[str], JsonValue], ids: Sequence[str], done: str) -> None:
    """Does the same to each record; exits with 1 if one does not exist, or does not allow it."""
    has_failed = False
    for each in ids:
        try:
            answer = call(each)
        except (NotFoundError, InvalidOperationError) as error:
            has_failed = True
            echo(f"Error: {error.message}", err=True)
        else:
            echo(answer.to_json() if session.as_json else f"{done} {each}")
    if has_failed:
        raise SystemExit(1)


def remove_matching(
    session: Session,
    call: Callable[..., _Receipt],
    told: Callable[[_Receipt], str],
    *,
    done: str = "removed",
    number_only: bool = False,
    dry_run: bool,
    yes: bool,
    **which: Any,
) -> bool:
    """Counts what matches, asks, and removes it; `told` names what a receipt is about. Returns whether any matched.

    The first field of a receipt is the number of records; `number_only`: the only one in the JSON.
    """
    receipt = call(**which, dry_run=True)
    found = bool(_number(receipt))
    if not yes or dry_run:
        note_lacking(call, which)
    if not dry_run and found:
        if not yes:
            click.confirm(f"Remove {told(receipt)}{_end_of(which)} for good?", abort=True, err=True)
        receipt = call(**which)
    if session.as_json:
        said = list(receipt.to_dict().items())
        echo(json.dumps({**dict(said[:1] if number_only else said), "dry_run": dry_run}))
    else:
        echo(f"{told(receipt)}{_end_of(which)} would be {done}" if dry_run else f"{told(receipt)} {done}")
    return found


def note_lacking(call: Callable[..., JsonValue], which: Mapping[str, Any]) -> None:
    """Prints how many of the records that a removal matches have no such key as a condition with != names."""
    where = as_fact_filter(which.get("where"))
    for part in where.parts if isinstance(where, AllOf) else (where,):
        if isinstance(part, Condition) and part.operator is Operator.NE and where is not None:
            count = _number(call(**{**which, "where": where & ~F(part.field).exists()}, dry_run=True))
            if count:
                note(f"{count:,} of them have no {part.field}: != is true of them, too")


def _number(receipt: JsonValue) -> int:
    return int(next(iter(receipt.to_dict().values())))


def _end_of(which: Mapping[str, Any]) -> str:
    """The moment up to which a removal reaches, to read; empty if it has no end."""
    ends = {"before": "before", "created_to": "up to"}
    return "".join(f", all {word} {exact_time(which[name])}," for name, word in ends.items() if which.get(name))
