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
        changeable: Callable[[Document], bool],
        is_answered: Callable[[str], bool],
    ) -> None:
        """Reads nothing yet.

        Args:
            records: the collection, without bounds.
            owned: the write as it is made; raises PermissionDeniedError for another's user or namespace.
            changeable: whether a document exists for the caller; raises PermissionDeniedError if it may only be read.
            is_answered: whether the caller's request with this id has an answer, which then is the answer again.
        """
        self._records, self._owned, self._changeable, self._is_answered = records, owned, changeable, is_answered

    def refusals(self, writes: Sequence[DocumentWrite]) -> list[MnemonError | None]:
        """See WriteGuard."""
        found: list[MnemonError | None] = [self._refused(write) for write in writes]
        places = [i for i, refusal in enumerate(found) if refusal is None and writes[i].document.doc_id]
        names = [writes[i].document.doc_id for i in places]
        stored = self._records.get_documents(names, fields_only=True) if names else ()
        for i, document in zip(places, stored, strict=True):
            if document is not None and not self._is_replay(writes[i]):
                found[i] = self._refused_change(writes[i], document)
        return found

    def _refused(self, write: DocumentWrite) -> PermissionDeniedError | None:
        try:
            self._owned(write)
        except PermissionDeniedError as error:
            return error
        return None

    def _refused_change(self, write: DocumentWrite, stored: Document) -> MnemonError | None:
        try:
            return None if self._changeable(stored) else write.taken()
        except PermissionDeniedError as error:
            return error

    def _is_replay(self, write: DocumentWrite) -> bool:
        return write.request is not None and self._is_answered(write.request.request_id)
