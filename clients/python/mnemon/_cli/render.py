"""Formats answers for people: tables as wide as the terminal, without control characters."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mnemon._terminal import printable
from mnemon._values import documents as values

_PASSAGE_CHARACTERS_MAX = 400
_FIRST_WORDS_CHARACTERS_MAX = 160


def plain(text: str, style: str = "") -> Text:
    """The text with control characters made visible, except for line breaks and tabs."""
    return Text(printable(text), style=style)


def one_line(text: str, characters_max: int) -> Text:
    """The text with white space folded, cut with an ellipsis."""
    folded = " ".join(text.split())
    return plain(folded if len(folded) <= characters_max else folded[: characters_max - 1].rstrip() + "…")


def search_table(answer: values.SearchAnswer) -> RenderableType:
    """The results of a search, each with the passage that matched."""
    if not answer:
        return Text("nothing found")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("document", overflow="fold", max_width=40)
    table.add_column("passage", ratio=1)
    for hit in answer:
        table.add_row(f"{hit.score:.3f}", plain(hit.doc_id), one_line(hit.passage_text, _PASSAGE_CHARACTERS_MAX))
    return table


def document_table(documents: Iterable[values.Document]) -> RenderableType:
    """Documents, each with its first words."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("document", overflow="fold")
    table.add_column("revision", justify="right", no_wrap=True)
    table.add_column("updated", no_wrap=True)
    table.add_column("content", ratio=1)
    for document in documents:
        table.add_row(
            plain(document.doc_id),
            str(document.revision),
            short_time(document.update_time),
            one_line(document.content, _FIRST_WORDS_CHARACTERS_MAX),
        )
    return table if table.row_count else Text("no documents")


def document_sheet(document: values.Document) -> RenderableType:
    """One document: its fields, then its text."""
    scope = {name: value for name, value in document.scope.to_dict().items() if value}
    fields = {
        "document": document.doc_id,
        "revision": document.revision,
        "created": short_time(document.create_time),
        "updated": short_time(document.update_time),
        "passages": document.passage_count,
        **scope,
    }
    return Group(field_table(fields), field_table(document.metadata), Text(), plain(document.content))


def health_table(health: values.StoreHealth) -> RenderableType:
    """The health of the store."""
    model = health.embedding_model
    return field_table(
        {
            "status": health.status,
            "message": health.message,
            "backend": " ".join(part for part in (health.backend, health.host, health.collection) if part),
            "model": f"{model.name} {model.precision}, {model.dimension} dimensions",
            "documents": health.document_count,
            "passages": health.passage_count,
            "pending": health.pending,
            "being removed": removals(health.removal_pending_count, health.removal_out_of_reach_count),
            "latency": "no answer" if health.latency_s is None else f"{health.latency_s * 1000:.1f} ms",
        }
    )


def removals(pending: int, out_of_reach: int) -> str:
    """Removed data that is still in files, as a line; empty if there is no such data."""
    said = [f"{pending:,}"] if pending else []
    return ", ".join([*said, *([f"{out_of_reach:,} in files of ChromaDB's server"] if out_of_reach else [])])


def field_table(fields: Mapping[str, object]) -> RenderableType:
    """Names and values, one per line; empty values are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value != "":
            table.add_row(plain(name), plain(str(value)))
    return table


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


def short_time(time: datetime | None) -> str:
    """A time to the minute, in the zone of this machine; empty if it is None."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M") if time else ""
