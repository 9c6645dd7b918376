"""Assigns small numbers to the scopes and event types of a vault, so that columns hold numbers instead of text."""

import threading
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.index.rows import Codes, Flags

Value = TypeVar("Value", bound=Hashable)

ScopeTexts = tuple[str, ...]
"""The fields of a scope in the order of SCOPE_FIELDS. A tuple is hashed and compared much faster than a Scope."""

scope_texts: Callable[[Scope], ScopeTexts] = attrgetter(*SCOPE_FIELDS)

_CAPACITY_MIN = 64
_SCOPE_FIELDS = len(SCOPE_FIELDS)


class Interner(Generic[Value]):
    """Assigns the codes 0, 1, 2, … to values in the order of first use. Codes are permanent.

    Thread-safe. Reads need no lock, and a code that a thread has received can be looked up.
    """

    def __init__(self) -> None:
        self._codes: dict[Value, int] = {}
        self._values: list[Value] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of values with a code."""
        return len(self._values)

    def code(self, value: Value) -> int:
        """The value's code. Assigns one if it has none."""
        code = self._codes.get(value)
        return self._add(value) if code is None else code

    def codes(self, values: Iterable[Value]) -> list[int]:
        """The code of each value."""
        wanted = list(values)
        try:
            return list(map(self._codes.__getitem__, wanted))
        except KeyError:
            return [self.code(value) for value in wanted]

    def find(self, value: Value) -> int | None:
        """The value's code, or None."""
        return self._codes.get(value)

    def value(self, code: int) -> Value:
        """The value with this code."""
        return self._values[code]

    def _add(self, value: Value) -> int:
        with self._lock:
            code = self._codes.get(value)
            if code is None:
                code = len(self._values)
                self._store(value, code)
            return code

    def _store(self, value: Value, code: int) -> None:
        # The code is published last, so that a thread that finds it can look up everything else.
        self._values.append(value)
        self._codes[value] = code


class ScopeInterner(Interner[ScopeTexts]):
    """Numbers for scopes, as tuples of their texts, and for the texts themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._texts = tuple(Interner[str]() for _ in range(_SCOPE_FIELDS))
        self._table: NDArray[np.uint32] = np.empty((_SCOPE_FIELDS, _CAPACITY_MIN), np.uint32)

    @property
    def nbytes(self) -> int:
        """The size of the numbers in bytes, without texts."""
        return self._table.nbytes

    def find_user(self, user: str) -> int | None:
        """The number of a user; None if no scope has it."""
        return self._texts[0].find(user)

    def user_codes(self, scope_codes: NDArray[np.unsignedinteger] | NDArray[np.signedinteger]) -> Codes:
        """The number of the user of each scope."""
        users: Codes = self._table[0][scope_codes]
        return users

    def matching(self, wanted: Scope) -> Codes:
        """The ascending codes of the scopes that match all fields that are set in `wanted`."""
        # Read the length first: the table may be exchanged for a longer one, never for a shorter one.
        count = len(self)
        table = self._table[:, :count]
        hits: Flags | None = None
        for texts, column, text in zip(self._texts, table, scope_texts(wanted), strict=True):
            if text:
                code = texts.find(text)
                if code is None:
                    return np.empty(0, np.uint32)
                hits = column == code if hits is None else hits & (column == code)
        return np.arange(count, dtype=np.uint32) if hits is None else np.flatnonzero(hits).astype(np.uint32)

    def _store(self, value: ScopeTexts, code: int) -> None:
        if code == self._table.shape[1]:
            larger = np.empty((_SCOPE_FIELDS, 2 * code), np.uint32)
            larger[:, :code] = self._table
            self._table = larger
        texts = zip(self._texts, value, strict=True)
        self._table[:, code] = [interner.code(text) for interner, text in texts]
        super()._store(value, code)


class Interners:
    """The codes to which the columns of a vault's blocks refer."""

    def __init__(self) -> None:
        self.scopes = ScopeInterner()
        self.types = Interner[str]()
