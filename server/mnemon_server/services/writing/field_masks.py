"""Checks and applies changes of records: whole fields in the mask, and single keys of metadata besides."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.origins import without_origin
from mnemon_server.domain.records import METADATA_KEYS_MAX, RecordUpdate, metadata_key_problem
from mnemon_server.domain.validation import metadata_violations
from mnemon_server.ranking.heads import Heads

MASK_PATHS_MAX = 128
"""More than the number of fields in any message."""

_SCOPE = {f"scope.{name}": name for name in SCOPE_FIELDS}


Record = TypeVar("Record", Document, Memory)


def change_violations(
    change: RecordUpdate, fields: Collection[str], *, output_only: Collection[str] = ()
) -> Iterable[FieldViolation]:
    """Violations in the field names in the mask, and with the metadata keys to set or remove."""
    yield from _mask_violations(change, fields, output_only)
    yield from metadata_violations(change.set_metadata, "set_metadata")
    yield from _removal_violations(change)
    if "metadata" in change.mask and (change.set_metadata or change.remove_metadata):
        yield FieldViolation(
            "update_mask",
            '"metadata" replaces all metadata, set_metadata and remove_metadata change single keys; use only one way',
        )


def covers(path: str, field: str) -> bool:
    """Whether a path of a mask names the field, or one that contains it."""
    return path == field or field.startswith(f"{path}.")


def in_mask(violations: Iterable[FieldViolation], change: RecordUpdate, field: str) -> Iterable[FieldViolation]:
    """The violations in fields of the mask; `field` is the one that holds the record."""
    for violation in violations:
        if any(covers(path, violation.field.removeprefix(f"{field}.")) for path in change.mask):
            yield violation


def updated(stored: Record, given: Record, change: RecordUpdate) -> Record:
    """The stored record with the change made, for which `given` has the fields of the mask."""
    new = stored
    for path in change.mask:
        if part := _SCOPE.get(path):
            scope = replace(new.scope, **{part: getattr(given.scope, part)})
            new = replace(new, scope=scope if scope.origin else without_origin(scope))
        else:
            new = replace(new, **{path: getattr(given, path)})
    kept = {key: value for key, value in new.metadata.items() if key not in change.remove_metadata}
    return replace(new, metadata={**kept, **change.set_metadata})


def may_change_text(change: RecordUpdate, heads: Heads) -> bool:
    """Whether a change may give a record another text, or another head."""
    keys = (*change.set_metadata, *change.remove_metadata)
    return bool({"content", "metadata"}.intersection(change.mask)) or any(map(heads.has, keys))


def _mask_violations(
    change: RecordUpdate, fields: Collection[str], output_only: Collection[str]
) -> Iterable[FieldViolation]:
    if not (change.mask or change.set_metadata or change.remove_metadata):
        what = f"{', '.join(fields)}; or set_metadata or remove_metadata must"
        yield FieldViolation("update_mask", f"must name what to change: {what}")
    if len(change.mask) > MASK_PATHS_MAX:
        yield FieldViolation("update_mask", f"must name at most {MASK_PATHS_MAX} fields")
        return
    for path in change.mask:
        if problem := _path_problem(path, fields, output_only):
            yield FieldViolation("update_mask", f"{path[:80]!r} {problem}")


def _path_problem(path: str, fields: Collection[str], output_only: Collection[str]) -> str:
    if path in fields or path in _SCOPE:
        return ""
    if path.startswith("metadata."):
        return "names a key, but a mask may only name fields; use set_metadata and remove_metadata for single keys"
    if path in output_only:
        return "is set by the server and cannot be changed"
    return f"is not a field that can be changed; these can: {', '.join(fields)}, parts of scope"


def _removal_violations(change: RecordUpdate) -> Iterable[FieldViolation]:
    # No record has more keys than this.
    if len(change.remove_metadata) > METADATA_KEYS_MAX:
        yield FieldViolation("remove_metadata", f"must name at most {METADATA_KEYS_MAX} keys")
        return
    for index, key in enumerate(change.remove_metadata):
        if problem := metadata_key_problem(key):
            yield FieldViolation(f"remove_metadata[{index}]", problem)
        elif key in change.set_metadata:
            yield FieldViolation(f"remove_metadata[{index}]", f"{key!r} is also in set_metadata; choose one")
