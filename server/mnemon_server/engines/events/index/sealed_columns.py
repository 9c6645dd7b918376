"""The columns of a sealed segment's events, and their sort order."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.events.index.interning import Interners, ScopeTexts
from mnemon_server.engines.events.index.rows import Codes, Hashes, Importances, Positions, ShortHashes, Times


@dataclass(frozen=True, slots=True)
class SealedColumns:
    """40 bytes per event, sorted by user (as text), time and key hash. Immutable.

    Only `sorted_ids` and `id_positions` have another order: ascending hashes of ids, with the position of each. Only
    the upper halves of hashes are stored. They find candidates; one in four billion is wrong.
    """

    times_us: Times
    key_hashes: ShortHashes
    sorted_ids: ShortHashes
    id_positions: Codes
    offsets: Codes
    deltas: Codes
    """Sequences, relative to the segment's first."""
    scopes: Codes
    """Positions in the segment's dictionary, as are `types`."""
    types: Codes
    importances: Importances
    """NaN if unknown."""

    def arrays(self) -> list[NDArray[Any]]:
        """The columns in order of declaration, which is also their order in a file."""
        return [getattr(self, field.name) for field in fields(self)]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.arrays())


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The codes of a segment's scopes and types, each once, sorted by their texts."""

    scopes: Codes
    types: Codes
    interners: Interners

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self.scopes.nbytes + self.types.nbytes

    def scope_texts(self) -> list[ScopeTexts]:
        """The scopes in order."""
        return [self.interners.scopes.value(code) for code in self.scopes.tolist()]

    def type_names(self) -> list[str]:
        """The names of the types in order."""
        return [self.interners.types.value(code) for code in self.types.tolist()]

    def user_numbers(self) -> Codes:
        """For each scope the number of its user: 0 for the first user, incremented for each further one."""
        users = self.interners.scopes.user_codes(self.scopes)
        changes = users[1:] != users[:-1]
        return np.concatenate([np.zeros(min(1, len(users)), np.uint32), np.cumsum(changes, dtype=np.uint32)])


def dictionary_of(scopes: Codes, types: Codes, interners: Interners) -> tuple[Dictionary, Codes, Codes]:
    """Creates the dictionary for two columns of codes, and converts the columns to positions in it."""
    scope_codes, scope_column = _ranked(scopes, interners.scopes.value)
    type_codes, type_column = _ranked(types, interners.types.value)
    return Dictionary(scope_codes, type_codes, interners), scope_column, type_column


def canonical_order(users: Codes, times: Times, key_hashes: Hashes) -> Positions:
    """The positions of rows in the order of a sealed segment. Users must be numbered in the order of their texts."""
    order: Positions = np.lexsort((key_hashes, times, users))
    return order


def is_canonical(users: Codes, times: Times, key_hashes: ShortHashes) -> bool:
    """Whether rows are in the order of a sealed segment."""
    same_user = users[1:] == users[:-1]
    same_time = same_user & (times[1:] == times[:-1])
    later = (users[1:] > users[:-1]) | (same_user & (times[1:] > times[:-1]))
    return bool(np.all(later | (same_time & (key_hashes[1:] >= key_hashes[:-1]))))


def _ranked(codes: Codes, text: Callable[[int], str | ScopeTexts]) -> tuple[Codes, Codes]:
    """The distinct codes sorted by their texts, and for each row the position of its code among them."""
    different, positions = np.unique(codes, return_inverse=True)
    texts = [text(code) for code in different.tolist()]
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.intp)
    ranks = np.empty(len(order), np.uint32)
    ranks[order] = np.arange(len(order), dtype=np.uint32)
    return different[order], ranks[positions]
