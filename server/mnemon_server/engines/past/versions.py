"""The versions of a collection's records that held at a moment."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from mnemon_server.domain.collections import Collection
from mnemon_server.domain.encoding import SCOPE_FIELDS, document_matches
from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.domain.filters import (
    METADATA_PREFIX,
    AllOf,
    Condition,
    Expression,
    Operator,
    RecordFilter,
    fields_of,
)
from mnemon_server.domain.history import Version, stored_version
from mnemon_server.engines.promises.records import RecordEngine

PAGE = 200
VERSIONS_MAX, BYTES_MAX = 20_000, 256 << 20
"""Versions that one call reads at most, and their texts and vectors together."""
_SHARED = frozenset({"content", "namespace", *SCOPE_FIELDS})
"""Fields that a version has under the same names as its record."""


class PastVersions:
    """Reads the versions of one collection that held at a moment."""

    def __init__(self, versions: RecordEngine, collection: Collection, at: datetime) -> None:
        """`versions` is the collection VERSIONS."""
        self._versions = versions
        self._at = at
        self._held = (
            Condition("kind", Operator.EQ, (collection.name,)),
            Condition("since", Operator.LTE, (at,)),
            Condition("until", Operator.GT, (at,)),
        )

    def matching(self, where: RecordFilter) -> list[Version]:
        """The versions that match, in the order of their records' positions. One record has at most one.

        Raises:
            InvalidOperationError: they are too many to read.
        """
        wanted = RecordFilter(where.equal, where.scope, AllOf((*self._held, *_shared(where.expression))), hidden=None)
        found = {each.document.doc_id: each for each in self._read(wanted) if document_matches(each.document, where)}
        return sorted(found.values(), key=lambda version: (version.position, version.document.doc_id))

    def of(self, record_ids: Sequence[str]) -> dict[str, Version]:
        """The versions of these records, by their ids."""
        named = Condition("record_id", Operator.IN, tuple(record_ids))
        wanted = RecordFilter(expression=AllOf((named, *self._held)), hidden=None)
        return {each.document.doc_id: each for each in self._read(wanted)} if record_ids else {}

    def _read(self, where: RecordFilter) -> Iterator[Version]:
        after = count = size = 0

        def fits(_: str, more: int) -> bool:
            nonlocal size
            size += more
            return size <= BYTES_MAX

        while rows := self._versions.list_documents(where, after=after, limit=PAGE, vectors=True, fits=fits):
            count += len(rows)
            after = rows[-1][0]
            yield from (stored_version(document) for _, document in rows)
            if count > VERSIONS_MAX:
                break
        if count > VERSIONS_MAX or size > BYTES_MAX:
            raise InvalidOperationError(
                f"more than {VERSIONS_MAX:,} records, or {BYTES_MAX >> 20} MiB of them, have changed since as_of: ask "
                "about fewer, such as the records of one user"
            )


def _shared(expression: Expression | None) -> Iterator[Expression]:
    """The parts of a filter that a version meets if and only if its record does."""
    parts = expression.parts if isinstance(expression, AllOf) else () if expression is None else (expression,)
    for part in parts:
        if isinstance(part, AllOf):
            yield from _shared(part)
        elif all(field in _SHARED or field.startswith(METADATA_PREFIX) for field in fields_of(part)):
            yield part
