"""Checks that nothing is left: every byte of every file, and the neighbours of the erased vectors. All of it blocks."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.encoding import encode_metadata, scope_values
from mnemon_server.domain.events import EventSelection
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.kinds import COLLECTION_OF
from mnemon_server.engines.promises.marks import Marks
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.erasure.selection import pages_of, pages_of_events
from mnemon_server.services.erasure.survey import Probes
from mnemon_server.services.writing.tombstones import Names

SAME_MIN = 0.9999
"""Vectors with this cosine similarity are the same, up to the rounding of a probe."""
NEIGHBOURS = 100


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the check."""

    files: int
    bytes: int
    marks: int
    found: frozenset[str]
    """The files in which something erased is left."""
    left: frozenset[int]
    """The numbers of the marks that are left in these files."""
    shared: int
    """Marks that were found, but are also of records that were not erased."""
    neighbours: int
    """Erased records that a search for their vectors still finds."""


def check(vault: Vault, names: Names, erased: Set[bytes], marks: Marks, probes: Probes) -> Proof:
    """Looks for the marks in all files, and for the vectors in all collections."""
    scan = vault.scan(marks)
    seen = {number for numbers in scan.found.values() for number in numbers}
    shared = _of_others(vault, marks, seen) if seen else set()
    found = frozenset(file for file, numbers in scan.found.items() if numbers - shared)
    left = frozenset(seen - shared)
    return Proof(
        scan.files, scan.bytes, len(marks), found, left, len(shared), _neighbours(vault, names, erased, probes)
    )


def _of_others(vault: Vault, marks: Marks, wanted: Set[int]) -> set[int]:
    """Which of the marks occur in records that are still stored."""
    found: set[int] = set()
    for data in _stored(vault):
        found |= marks.find(data) & wanted
        if found == wanted:
            break
    return found


def _stored(vault: Vault) -> Iterator[bytes]:
    """Stored texts, some records at a time; also in lower case, as their words are stored."""
    for kind in COLLECTION_OF:
        for page in pages_of(vault, kind, RecordFilter(hidden=None), vectors=True):
            texts, vectors = [], []
            for one in page:
                fields = map(str, one.fields.values())
                texts += [one.doc_id, one.content, encode_metadata(one.metadata), *scope_values(one.scope), *fields]
                vectors += [each.embedding for each in one.passages if each.embedding is not None]
            text = "\n".join(texts)
            yield (text + text.casefold()).encode("utf-8", "surrogatepass")
            yield b"".join(form for each in vectors for form in vault.forms_of(np.array(each, np.float32)))
    for events in pages_of_events(vault, vault.events.sequences(EventSelection())):
        yield b"\n".join(one.body for one in events)


def _neighbours(vault: Vault, names: Names, erased: Set[bytes], probes: Probes) -> int:
    """How many erased records are among the neighbours of their vectors."""
    found: set[bytes] = set()
    for kind, vectors in probes.items():
        records = vault.collection(COLLECTION_OF[kind])
        for vector in vectors:
            query: NDArray[np.float32] = vector / np.float32(np.linalg.norm(vector))
            scores = records.nearest_vectors(query, limit=NEIGHBOURS) or records.scan_vectors(query)
            near = scores.passage_ids[scores.scores >= SAME_MIN][:NEIGHBOURS].tolist()
            keys = {names.record(kind, place.doc_id) for place in records.locate_passages(near)}
            found |= keys & erased
    return len(found)
