"""JSON from users: a key that an object has twice is refused, since reading would drop a value."""

import json
from typing import Any


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or an object has a key twice.
        RecursionError: lists and objects are nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in found if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return found
