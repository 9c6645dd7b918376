"""Checks and applies the update mask of a memory."""

from collections.abc import Iterable
from dataclasses import replace

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.memories import TAGS, Memory, UpdateMemory
from mnemon_server.services.writing import field_masks as masks

FIELDS = ("content", "scope", *TAGS, "is_global", "decay_policy", "metadata")
_OUTPUT_ONLY = ("memory_id", "confidence", "revision", "create_time", "update_time", "reinforce_time", "delete_time")


def change_violations(change: UpdateMemory) -> Iterable[FieldViolation]:
    """Violations in the field names in the mask, and with the metadata keys to set or remove."""
    return masks.change_violations(change, FIELDS, output_only=_OUTPUT_ONLY)


def apply_change(stored: Memory, change: UpdateMemory) -> Memory:
    """The stored memory with the change applied."""
    memory = stored
    for path in change.mask:
        if masks.is_part_of_scope(path):
            memory = replace(memory, scope=masks.with_part(memory.scope, change.memory.scope, path))
        else:
            memory = replace(memory, **{path: getattr(change.memory, path)})
    return replace(memory, metadata=masks.with_keys(memory.metadata, change))
