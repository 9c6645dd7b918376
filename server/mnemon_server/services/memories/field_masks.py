"""The fields of a memory that a change may name, and the change itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.records import MetadataValue, Scope, metadata_key_problem

_PLAIN = {
    "content": "content",
    "scope": "scope",
    "personality": "personality",
    "type": "type",
    "global": "is_global",
    "decay_policy": "decay_policy",
    "metadata": "metadata",
}
_SCOPE = frozenset(f"scope.{part.name}" for part in fields(Scope))
_OUTPUT_ONLY = frozenset(
    ("memory_id", "confidence", "revision", "create_time", "update_time", "reinforce_time", "delete_time")
)
_METADATA_PREFIX = "metadata."


def mask_violations(mask: Sequence[str]) -> Iterable[FieldViolation]:
    """What is wrong with an update mask."""
    if not mask:
        yield FieldViolation("update_mask", f"must name what to change: {', '.join(_PLAIN)}")
    for path in mask:
        if problem := _path_problem(path):
            yield FieldViolation("update_mask", f"{path[:80]!r} {problem}")


def covers(path: str, field: str) -> bool:
    """Whether a path of a mask and a field are the same, or one is a part of the other."""
    return path == field or field.startswith(f"{path}.") or path.startswith(f"{field}.")


def apply_mask(stored: Memory, change: Memory, mask: Sequence[str]) -> Memory:
    """The stored memory with the fields that the mask names taken from `change`."""
    memory = stored
    for path in mask:
        memory = _taken(memory, change, path)
    return memory


def _path_problem(path: str) -> str:
    if path in _PLAIN or path in _SCOPE:
        return ""
    if path.startswith(_METADATA_PREFIX):
        problem = metadata_key_problem(path.removeprefix(_METADATA_PREFIX))
        return f"is not a key of metadata, which {problem}" if problem else ""
    if path in _OUTPUT_ONLY:
        return "is set by the server and cannot be changed"
    return f"is not a field that can be changed; these can: {', '.join(_PLAIN)}, a part of scope, a key of metadata"


def _taken(memory: Memory, change: Memory, path: str) -> Memory:
    if path.startswith(_METADATA_PREFIX):
        key = path.removeprefix(_METADATA_PREFIX)
        return replace(memory, metadata=_with_key(memory.metadata, change.metadata, key))
    if path in _SCOPE:
        part = path.removeprefix("scope.")
        return replace(memory, scope=replace(memory.scope, **{part: getattr(change.scope, part)}))
    attribute = _PLAIN[path]
    return replace(memory, **{attribute: getattr(change, attribute)})


def _with_key(
    stored: Mapping[str, MetadataValue], change: Mapping[str, MetadataValue], key: str
) -> dict[str, MetadataValue]:
    """Metadata with one key as in `change`, where it may be missing."""
    others = {name: value for name, value in stored.items() if name != key}
    return others | {key: change[key]} if key in change else others
