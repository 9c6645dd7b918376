"""What the readers of JSON requests share: the time of a step, what is wrong, and long texts."""

from typing import Any

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.transport.http.json_text import COPIED_MAX, RUN_CHARS, Step, Steps

VIOLATIONS_MAX = 100
"""So many faults are named."""
TOO_DEEP = "is too deep"
_NAME_CHARS_MAX = 128
"""Of a name, so much is shown."""

Path = tuple[Any, str] | None
"""Where a value is: where the value is that it is in, and its name there."""


class Reading:
    """One request."""

    def __init__(self, step: Step) -> None:
        """Nothing is wrong yet."""
        self.step = step
        self.violations: list[FieldViolation] = []

    def note(self, path: Path, problem: str) -> None:
        """Remembers what is wrong; raises InvalidArgumentError once that is enough."""
        self.violations.append(FieldViolation(_shown(path), problem))
        if len(self.violations) == VIOLATIONS_MAX:
            raise InvalidArgumentError(self.violations)


def utf8(reading: Reading, text: str, path: Path) -> Steps[bytes]:
    """A text as bytes; notes one that has none."""
    try:
        if len(text) <= RUN_CHARS:
            return text.encode()
        if is_long := len(text) > COPIED_MAX:
            yield
        if text.isascii():
            data = text.encode()
        else:
            pieces = []
            for start in range(0, len(text), RUN_CHARS):
                pieces.append(text[start : start + RUN_CHARS].encode())
                if reading.step.is_over():
                    yield
            if is_long:
                yield
            data = b"".join(pieces)
        if is_long:
            yield
        return data
    except UnicodeEncodeError:
        reading.note(path, "must be a text without halves of surrogate pairs")
        return b""


def object_problem(value: Any) -> str:
    """What is wrong with a value that is no object, or too deep inside of others."""
    return TOO_DEEP if isinstance(value, dict) else "must be an object"


def _shown(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, part = path
        parts.append(part[:_NAME_CHARS_MAX])
    # A name may have halves of surrogate pairs, which no answer can hold.
    return "".join(reversed(parts)).removeprefix(".").encode(errors="replace").decode()
