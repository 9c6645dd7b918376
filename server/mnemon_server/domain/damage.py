"""What is stored and cannot be read: told as the damage that it is, with the record that it is in."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import RecordDamagedError

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""What reading raises where the bytes are not those that were written: none of it can come of what was."""

P = ParamSpec("P")
T = TypeVar("T")


def reads(
    collection: Collection,
) -> Callable[[Callable[Concatenate[Document, P], T]], Callable[Concatenate[Document, P], T]]:
    """Of a function that reads a stored document of this collection: what it cannot read is damaged.

    The function raises RecordDamagedError then.
    """

    def decorate(function: Callable[Concatenate[Document, P], T]) -> Callable[Concatenate[Document, P], T]:
        @wraps(function)
        def read(document: Document, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(document, *args, **kwargs)
            except UNREADABLE as error:
                raise RecordDamagedError(collection.name, document.doc_id) from error

        return read

    return decorate
