"""Stored data that cannot be read is reported as damage, with the record that holds it."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import RecordDamagedError

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""What decoding raises if the bytes differ from those written. Intact bytes raise none of these."""

P = ParamSpec("P")
T = TypeVar("T")


def reads(
    collection: Collection,
) -> Callable[[Callable[Concatenate[Document, P], T]], Callable[Concatenate[Document, P], T]]:
    """Decorates a function that reads a stored document of this collection.

    The decorated function raises RecordDamagedError if the document cannot be read.
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
