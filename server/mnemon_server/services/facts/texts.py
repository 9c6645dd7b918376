"""Which texts of a fact's value are searched, and how they become the content of its record.

Each text is a passage of its own, or several if it is long, so that the best passage decides the score.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mnemon_server.domain.facts import FactIndex, FactValue
from mnemon_server.domain.records import MetadataValue
from mnemon_server.ranking.heads import Heads
from mnemon_server.services.search.embedded_passages import PlacedText

PATHS_MAX = 16
TEXTS_MAX = 64
"""The most texts of a fact. All further ones are joined to one text, since a value may have very many short texts."""

PATH = re.compile(r"\$|[^.\[\]]+(?:\.[^.\[\]]+|\[(?:\*|-?[0-9]{1,9})\])*")
"""Names joined by dots, each followed by any number of "[0]", "[-1]" or "[*]"; "$" is the whole value."""

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\*|-?[0-9]+)\]")
_CONTENT = "content"
_SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class IndexedTexts:
    """The content of a fact's record, and the texts that it is made of; both empty if the fact is not searched."""

    content: str
    texts: tuple[PlacedText, ...]

    def headed(self, metadata: Mapping[str, MetadataValue], heads: Heads) -> list[PlacedText]:
        """The texts; the first one has the head."""
        return [replace(text, head="" if text.start else heads.of(metadata, self.content)) for text in self.texts]

    @classmethod
    def of(cls, value: FactValue, index: FactIndex) -> "IndexedTexts":
        """The texts of a value that are searched, each once."""
        found = list(dict.fromkeys(text for text in _chosen(value, index) if text.strip()))
        if len(found) > TEXTS_MAX:
            found[TEXTS_MAX - 1 :] = [_SEPARATOR.join(found[TEXTS_MAX - 1 :])]
        placed, start = [], 0
        for text in found:
            placed.append(PlacedText(text, start))
            start += len(text) + len(_SEPARATOR)
        return cls(_SEPARATOR.join(found), tuple(placed))


def _chosen(value: FactValue, index: FactIndex) -> Iterator[str]:
    if index.paths:
        for path in index.paths:
            yield from _texts_at(value, path)
    elif not index.off:
        content = value.get(_CONTENT)
        yield from (content,) if isinstance(content, str) and content.strip() else _texts_in(value)


def _texts_at(value: FactValue, path: str) -> Iterator[str]:
    """The texts at a path and below it; a number at the path becomes a text."""
    reached: Iterable[Any] = (value,)
    if path != "$":
        for step in _STEP.finditer(path):
            name, place = step.groups()
            reached = [inner for item in reached for inner in _step(item, name, place)]
    for item in reached:
        if isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)
        else:
            yield from _texts_in(item)


def _step(item: Any, name: str | None, place: str) -> Iterable[Any]:
    if name is not None:
        return (item[name],) if isinstance(item, dict) and name in item else ()
    if not isinstance(item, list | tuple):
        return ()
    if place == "*":
        return item
    number = int(place)
    return (item[number],) if -len(item) <= number < len(item) else ()


def _texts_in(item: Any) -> Iterator[str]:
    """Every text in the item, sorted by key: the order in which an object was written is not known here."""
    if isinstance(item, str):
        yield item
    elif isinstance(item, dict):
        for key in sorted(item):
            yield from _texts_in(item[key])
    elif isinstance(item, list | tuple):
        for inner in item:
            yield from _texts_in(inner)
