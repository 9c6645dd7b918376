"""The forms of files that `mnemon import` reads."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeAlias

from mnemon._cli.imports import facts, graph
from mnemon._cli.imports.found import Found, Item, Raw, damaged
from mnemon._cli.imports.json_text import records
from mnemon._errors import InvalidArgumentError

Reader: TypeAlias = Callable[[BinaryIO], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Form:
    """A form of files."""

    about: str
    read: Reader


def each(read: Callable[[Raw], Item]) -> Reader:
    """The reader of a form whose records stand alone."""

    def read_all(file: BinaryIO) -> Iterator[Found]:
        for raw in records(file):
            if not isinstance(raw, Raw):
                yield raw
                continue
            try:
                yield replace(read(raw), source=raw.value)
            except InvalidArgumentError as error:
                yield damaged(raw, error)

    return read_all


FORMS: Mapping[str, Form] = {
    "mem0": Form("memories of mem0 or OpenMemory", each(facts.mem0)),
    "langgraph": Form("items of a LangGraph store", each(facts.langgraph)),
    "chroma": Form("rows of a Chroma collection", each(facts.chroma)),
    "zep": Form("edges of a graph of Zep or Graphiti", each(facts.zep)),
    "mcp-memory": Form("the file of the Model Context Protocol's memory server", graph.knowledge_graph),
}
"""By the name that `mnemon import --from` takes."""


def mapped_by(mapping: facts.FieldMapping) -> Reader:
    """The reader of records whose fields the user has named."""
    return each(lambda raw: facts.mapped(raw, mapping, ("imported",)))
