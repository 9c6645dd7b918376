"""Finds what still names erased records: entries of the change log, and answers to requests. Everything here blocks."""

import json
import re
from collections.abc import Callable, Iterator, Set
from typing import Any

from mnemon_server.domain.changes import CHANGES_OF_FACTS, Change, ChangeFilter
from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.writing.tombstones import Names

AT_ONCE = 1_000
_EVERYTHING = ChangeFilter()
_QUOTED = re.compile(r'"([^"]*)"')


class Traces:
    """Looks for names whose tombstones are in a set."""

    def __init__(self, vault: Vault, names: Names, erased: Set[bytes]) -> None:
        self._vault = vault
        self._names = names
        self._erased = erased

    def changes(self, through: int) -> Iterator[list[int]]:
        """The sequences of the entries up to a position that name something erased, some at a time."""
        position = 0
        while position < through:
            found = self._vault.changes.read(position, limit=AT_ONCE, where=_EVERYTHING)
            sequences = [one.sequence for one in found.changes if one.sequence <= through and self._is_about(one)]
            if sequences:
                yield sequences
            if found.caught_up:
                return
            position = found.position

    def answers(self) -> Iterator[list[str]]:
        """The ids of the answers that name something erased, some at a time."""
        return _answers(self._vault, lambda text: any(map(self._is_erased, _names_in(text))))

    def _is_about(self, change: Change) -> bool:
        if change.scope.user and self._names.user(change.scope.user) in self._erased:
            return True
        if change.type in CHANGES_OF_FACTS and self._is_in_namespace(change):
            return True
        return self._is_erased(change.record_id) or any(map(self._is_erased, _names_in(change.details)))

    def _is_in_namespace(self, change: Change) -> bool:
        try:
            labels = json.loads(change.details)["namespace"]
        except UNREADABLE:
            return False
        return not self._erased.isdisjoint(self._names.of_namespace(labels))

    def _is_erased(self, name: str) -> bool:
        return bool(name) and not self._erased.isdisjoint(self._names.any_of(name))


def marked_answers(vault: Vault, marks: Marks, left: Set[int]) -> Iterator[list[str]]:
    """The ids of the answers in which some of the marks occur, some at a time.

    An erased record may name another one, such as a document, that was deleted before and has no tombstone.
    """
    return _answers(vault, lambda text: not left.isdisjoint(marks.find(text.encode("utf-8", "surrogatepass"))))


def _answers(vault: Vault, is_meant: Callable[[str], bool]) -> Iterator[list[str]]:
    after = ""
    while rows := vault.answers(after, limit=AT_ONCE):
        if ids := [stored_id for stored_id, text in rows if is_meant(text)]:
            yield ids
        after = rows[-1][0]


def _names_in(text: str) -> Iterator[str]:
    """The texts in JSON, also in JSON within JSON; of any other text, what is quoted."""
    if not text or text[0] not in '{["':
        return iter(_QUOTED.findall(text))
    try:
        return _texts_in(json.loads(text))
    except UNREADABLE:
        return iter(_QUOTED.findall(text))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            yield from _names_in(value)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_in(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts_in(item)
