"""Checks and applies changes of records: whole fields in the mask, and single keys of metadata besides."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.origins import without_origin
from mnemon_server.domain.records import METADATA_KEYS_MAX, MetadataValue, Scope, metadata_key_problem
from mnemon_server.domain.validation import metadata_violations
from mnemon_server.ranking.heads import Heads

MASK_PATHS_MAX = 128
"""More than the number of fields in any message."""

_SCOPE = {f"scope.{name}": name for name in SCOPE_FIELDS}


class Change(Protocol):
    """A change of a record."""

    @property
    def mask(self) -> tuple[str, ...]:
        """The fields to take from the record in the request."""

    @property
    def set_metadata(self) -> Mapping[str, MetadataValue]:
        """Keys to set."""

    @property
    def remove_metadata(self) -> tuple[str, ...]:
        """Keys to remove."""


def change_violations(
    change: Change, fields: Collection[str], *, output_only: Collection[str] = ()
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


def with_keys(stored: Mapping[str, MetadataValue], change: Change) -> dict[str, MetadataValue]:
    """The metadata after setting and removing the keys of the change."""
    kept = {key: value for key, value in stored.items() if key not in change.remove_metadata}
    return {**kept, **change.set_metadata}


def may_change_text(change: Change, heads: Heads) -> bool:
    """Whether a change may give a record another text, or another head."""
    keys = (*change.set_metadata, *change.remove_metadata)
    return bool({"content", "metadata"}.intersection(change.mask)) or any(map(heads.has, keys))


def is_part_of_scope(path: str) -> bool:
    """Whether a path names one field of a scope."""
    return path in _SCOPE


def with_part(stored: Scope, given: Scope, path: str) -> Scope:
    """The stored scope, with the field that the path names taken from the given scope."""
    part = _SCOPE[path]
    new = replace(stored, **{part: getattr(given, part)})
    return new if new.origin else without_origin(new)


def _mask_violations(change: Change, fields: Collection[str], output_only: Collection[str]) -> Iterable[FieldViolation]:
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


def _removal_violations(change: Change) -> Iterable[FieldViolation]:
    # No record has more keys than this.
    if len(change.remove_metadata) > METADATA_KEYS_MAX:
        yield FieldViolation("remove_metadata", f"must name at most {METADATA_KEYS_MAX} keys")
        return
    for index, key in enumerate(change.remove_metadata):
        if problem := metadata_key_problem(key):
            yield FieldViolation(f"remove_metadata[{index}]", problem)
        elif key in change.set_metadata:
            yield FieldViolation(f"remove_metadata[{index}]", f"{key!r} is also in set_metadata; choose one")
