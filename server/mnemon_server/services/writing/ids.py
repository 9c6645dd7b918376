"""Random UUIDs, made many at once.

The system's generator lets other threads run each time it is asked. A call that only wants an id would then wait until
one of them lets it continue, which takes as long as the rest of a small write.
"""

import os

_MADE_AT_ONCE = 1_024
_DIGITS = 32
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_spare: list[str] = []
# A forked process must not use the same ids.
os.register_at_fork(after_in_child=_spare.clear)


def new_id() -> str:
    """A random UUID of version 4 as text. Any thread may call it."""
    while True:
        try:
            return _spare.pop()
        except IndexError:
            digits = os.urandom(_MADE_AT_ONCE * _DIGITS // 2).hex()
            _spare.extend(_uuid(digits[start : start + _DIGITS]) for start in range(0, len(digits), _DIGITS))


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
