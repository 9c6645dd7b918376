"""JSON objects that stay encoded as text."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from mnemon_server.domain.damage import UNREADABLE
from mnemon_server.domain.errors import RecordDamagedError

T = TypeVar("T")


class JsonText(Mapping[str, Any]):
    """A JSON object that is parsed only on access: as Python objects it takes up to thirty times the memory.

    It equals every mapping with the same items. Access raises RecordDamagedError if the text is not a JSON object.
    """

    __slots__ = ("_collection", "_record_id", "_value", "text")

    def __init__(self, text: str, collection: str, record_id: str) -> None:
        """Takes the text, and the record that contains it for error messages."""
        self.text = text
        self._collection, self._record_id = collection, record_id
        self._value: Mapping[str, Any] | None = None

    def parsed(self) -> dict[str, Any]:
        """Parses the object. Each call parses anew, so this suits a caller that needs it once."""
        return self.read(_object)

    def read(self, reader: Callable[[str], T]) -> T:
        """The result of `reader` for the text."""
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
