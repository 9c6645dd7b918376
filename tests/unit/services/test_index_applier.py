"""The applier keeps feeding a vector index, and finishes whatever is written in the meantime."""

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import RebuildProgress
from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Scores, Vector
from mnemon_server.engines.promises.vector_index import IndexEntry, IndexState
from mnemon_server.services.search import index_applier
from mnemon_server.services.search.index_applier import IndexApplier

from tests.contract.vault_suite import DIMENSION, ManualClock, write
from tests.support.server import wait_until
from tests.support.vaults import temporary_vault

WRITES = 200


class FarIndex:
    """An index that can be out of reach, and that calls a hook whenever it receives something."""

    name, host = "far", "far"

    def __init__(self) -> None:
        self.is_away = self.is_mute = False
        self.opens = self.resets = 0
        self.documents: set[str] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    def open(self) -> IndexState:
        self.opens += 1
        if self.is_away:
            raise BackendConnectionError("it cannot be reached")
        return IndexState(f"{self.resets}", len(self.documents))

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        self.documents |= {entry.doc_id for entry in entries}
        self.documents -= set(deleted_doc_ids)
        self.meanwhile()

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        return Scores(np.empty(0, np.int64), np.empty(0, np.float64))

    def ping(self) -> None:
        if self.is_mute:
            raise BackendConnectionError("it does not answer")

    def reset(self) -> IndexState:
        self.resets += 1
        self.documents.clear()
        return self.open()

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def records() -> Iterator[RecordEngine]:
    with temporary_vault(ManualClock(), dimension=DIMENSION) as vault:
        yield vault.collection(DOCUMENTS)


def test_an_unreachable_index_is_not_retried_with_every_write(
    records: RecordEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_applier, "RETRY_FIRST_S", 3_600.0)
    index = FarIndex()
    index.is_away = True
    applier = IndexApplier(records, index)
    wait_until(lambda: bool(applier.failure))
    for number in range(WRITES):
        # Another thread may continue with the work for which the commit woke it.
        records.put_document(write(f"d{number}")).result()
        threading.Event().wait(0.001)
    assert index.opens == 1
    index.is_away = False
    applier.applied(WRITES).result(60)
    assert len(index.documents) == WRITES
    applier.close()


def test_a_caller_waiting_for_an_unreachable_index_triggers_a_retry(
    records: RecordEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_applier, "RETRY_FIRST_S", 3_600.0)
    index = FarIndex()
    index.is_away = True
    applier = IndexApplier(records, index)
    wait_until(lambda: bool(applier.failure))
    index.is_away = False
    records.put_document(write("d")).result()
    applier.applied(1).result(60)
    assert index.documents == {"d"}
    applier.close()


def test_an_outage_is_logged_while_a_call_hangs_and_again_when_the_index_is_back(
    records: RecordEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=index_applier.log.name)
    index, hanging, release = FarIndex(), threading.Event(), threading.Event()
    applier = IndexApplier(records, index)
    applier.applied(0).result(60)

    def hang() -> None:
        hanging.set()
        release.wait(60)

    index.meanwhile = hang
    records.put_document(write("d")).result()
    assert hanging.wait(60)
    index.is_mute = True
    for _ in range(3):
        applier.pulse.ask().result(60)
    wait_until(lambda: bool(caplog.messages))
    index.is_mute, index.meanwhile = False, lambda: None
    release.set()
    applier.pulse.ask().result(60)
    wait_until(lambda: not applier.problem)
    applier.close()
    assert caplog.messages == [
        "the vector index cannot be reached: it does not answer",
        "the vector index at far can be used again",
    ]


def test_a_rebuild_finishes_although_documents_keep_coming(records: RecordEngine) -> None:
    index, number = FarIndex(), 0
    for name in "abc":
        records.put_document(write(name)).result()
    applier = IndexApplier(records, index)
    applier.applied(3).result(60)

    def write_one() -> None:
        nonlocal number
        number += 1
        records.put_document(write(f"d{number}")).result()

    index.meanwhile = write_one
    heard: list[RebuildProgress] = []
    end = applier.rebuild(heard.append)
    wait_until(lambda: any(progress.done >= progress.total for progress in heard))
    end()
    index.meanwhile = lambda: None
    assert index.resets == 1 and {"a", "b", "c"} <= index.documents
    applier.close()
