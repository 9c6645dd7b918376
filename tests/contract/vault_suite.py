"""What the suites over vaults share: a clock, vectors, documents to write, and the vault itself."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.promises.vault import Vault

DIMENSION = 8
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def unit_vector(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    vector = np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32)
    return vector / np.linalg.norm(vector)  # type: ignore[no-any-return]


def write(doc_id: str, content: str = "a text", *, seed: int = 0, parts: int = 1, **fields: Any) -> DocumentWrite:
    """A document cut into `parts` equal passages, with vectors drawn from the seeds `seed`, `seed + 1` and so on."""
    terms = {name: fields.pop(name) for name in ("request", "expected_revision", "stamps") if name in fields}
    step = max(1, len(content) // parts)
    bounds = [(i * step, len(content) if i == parts - 1 else (i + 1) * step) for i in range(parts)]
    passages = [PassageInput(start, end, unit_vector(seed + i)) for i, (start, end) in enumerate(bounds)]
    return DocumentWrite(document=Document(doc_id, content, **fields), passages=passages, **terms)


def key(request_id: str, digest: bytes = b"same") -> RequestKey:
    return RequestKey(request_id, digest)


def listed(engine: RecordEngine, where: RecordFilter | None = None) -> list[str]:
    return [document.doc_id for _, document in engine.list_documents(where or RecordFilter(), limit=1000)]


def found_by_word(engine: RecordEngine, query: str) -> dict[str, float]:
    hits = engine.search_keywords(query)
    places = engine.locate_passages(hits.passage_ids.tolist())
    return {place.doc_id: score for place, score in zip(places, hits.scores, strict=True)}


class VaultSuite(ABC):
    """A suite that runs over vaults. A subclass says how they are opened."""

    collection = DOCUMENTS

    @abstractmethod
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        """A new vault, or the kept one when called again with the same folder."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def vault(self, tmp_path: Path, clock: ManualClock) -> Iterator[Vault]:
        vault = self.open_vault(tmp_path / "records", clock)
        yield vault
        vault.close()

    @pytest.fixture
    def engine(self, vault: Vault) -> RecordEngine:
        return vault.collection(self.collection)
