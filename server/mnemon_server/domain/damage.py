"""Stored data that cannot be read is reported as damage, with the record that holds it."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import MnemonError, RecordDamagedError

UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""The errors that decoding raises if the bytes have changed since they were written. Intact bytes never raise them."""

_PAGES_NAMED = 5

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


class PageDamagedError(RecordDamagedError):
    """Pages of a database are damaged. The rest of the database is not affected."""

    def __init__(self, file: str, pages: Sequence[int] = ()) -> None:
        """`pages` is empty if they are not known; the first page of a file is 1."""
        self.collection, self.record_id, self.pages = file, "", tuple(pages)
        named = ", ".join(map(str, pages[:_PAGES_NAMED]))
        more = f" and {len(pages) - _PAGES_NAMED:,} more" if len(pages) > _PAGES_NAMED else ""
        where = f"page {named}{more} of {file}" if pages else f"a page of {file}"
        MnemonError.__init__(
            self,
            f"{where} is damaged on disk: stop the server and run `mnemon-server repair`, which repairs it or says "
            "what only a backup can bring back",
        )


class VaultDamagedError(RecordDamagedError):
    """A vault as a whole cannot be read. Other vaults are not affected."""

    def __init__(self, message: str) -> None:
        """`message` says what is damaged or missing, and how to fix it."""
        self.collection, self.record_id = "vault", ""
        MnemonError.__init__(self, message)


class CommitsLostError(RecordDamagedError):
    """Commits are missing: the end of the write-ahead log is damaged, or files of different times were put together."""

    def __init__(self, found: int, stored: int) -> None:
        self.collection, self.record_id, self.found, self.stored = "records.db", "", found, stored
        MnemonError.__init__(
            self,
            f"records.db and its log have {found:,} commits, and at least {stored:,} were stored: the log is damaged, "
            "or the folder was copied while a server wrote to it; restore a backup of the vault, copy the folder again "
            "while no server uses it, or delete records.mark to go on without the missing commits",
        )
