"""Tells in advance which writes the caller may not make."""

from collections.abc import Callable, Sequence

from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import MnemonError, PermissionDeniedError
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite


class BoundGuard:
    """See WriteGuard. For one collection within a caller's bounds."""

    def __init__(
        self,
        records: RecordEngine,
        *,
        owned: Callable[[DocumentWrite], DocumentWrite],
        is_answered: Callable[[str], bool],
    ) -> None:
        """Reads nothing yet. `records` is without bounds.

        `owned` returns the write as it is made, with `visible` set, or raises PermissionDeniedError for another's user
        or namespace. `is_answered` says whether the caller's request with this id has an answer, which then is the
        answer again.
        """
        self._records, self._owned, self._is_answered = records, owned, is_answered

    def refusals(self, writes: Sequence[DocumentWrite]) -> list[MnemonError | None]:
        """See WriteGuard."""
        owned = [self._checked(write) for write in writes]
        found: list[MnemonError | None] = [each if isinstance(each, MnemonError) else None for each in owned]
        places = [i for i, refusal in enumerate(found) if refusal is None and writes[i].document.doc_id]
        names = [writes[i].document.doc_id for i in places]
        stored = self._records.get_documents(names, fields_only=True) if names else ()
        for i, document in zip(places, stored, strict=True):
            if document is not None and not self._is_replay(writes[i]):
                found[i] = _refused_change(owned[i], document)
        return found

    def _checked(self, write: DocumentWrite) -> DocumentWrite | PermissionDeniedError:
        try:
            return self._owned(write)
        except PermissionDeniedError as error:
            return error

    def _is_replay(self, write: DocumentWrite) -> bool:
        return write.request is not None and self._is_answered(write.request.request_id)


def _refused_change(write: DocumentWrite | PermissionDeniedError, stored: Document) -> MnemonError | None:
    """Why a write that was checked cannot replace the document."""
    if isinstance(write, PermissionDeniedError):
        return write
    try:
        return None if write.visible is None or write.visible(stored) else write.taken()
    except PermissionDeniedError as error:
        return error
