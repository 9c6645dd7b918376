"""JSON objects that are kept as their text."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.errors import RecordDamagedError

T = TypeVar("T")


class JsonText(Mapping[str, Any]):
    """A JSON object that is read when somebody looks inside: as Python values, it takes up to thirty times the space.

    Equal to every mapping with the same items. Looking inside raises RecordDamagedError where the text is none of an
    object.
    """

    __slots__ = ("_collection", "_record_id", "_value", "text")

    def __init__(self, text: str, collection: str, record_id: str) -> None:
        """Takes the text, and the record that it stands in."""
        self.text = text
        self._collection, self._record_id = collection, record_id
        self._value: Mapping[str, Any] | None = None

    def parsed(self) -> dict[str, Any]:
        """The object, made anew with each call, and so for a caller who needs it once."""
        return self.read(_object)

    def read(self, reader: Callable[[str], T]) -> T:
        """What `reader` makes of the text."""
        try:
            return reader(self.text)
        except UNREADABLE as error:
            raise RecordDamagedError(self._collection, self._record_id) from error

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return f"JsonText({self.text!r})"

    def _read(self) -> Mapping[str, Any]:
        if self._value is None:
            self._value = self.parsed()
        return self._value


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value
