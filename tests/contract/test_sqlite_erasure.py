"""Text removed from an open vault, or replaced in it, soon leaves all of its files."""

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import apsw
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DOCUMENTS, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import PruneReason
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.values import DocumentUpdate
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline_suite import SEGMENT_EVENTS_MAX, SETTINGS, append, get, happening
from tests.contract.vault_suite import DIMENSION, key, unit_vector, write
from tests.contract.vault_transactions import statement
from tests.support.databases import content_of, files_below, open_database
from tests.support.forks import run_python
from tests.support.server import wait_until

DELAY_S = 0.05


def open_vault(folder: Path, erasure_delay_s: float = DELAY_S, events: EventEngineSettings = SETTINGS) -> SQLiteVault:
    vault = SQLiteVault(
        folder,
        model_identity="test/1",
        dimension=DIMENSION,
        settings=VaultSettings(events=events, erasure_delay_s=erasure_delay_s),
        embed_events=lambda texts: [unit_vector(0) for _ in texts],  # type: ignore[arg-type,return-value]
    )
    assert vault.events.wait_until_warm(60)
    return vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[SQLiteVault]:
    vault = open_vault(tmp_path / "d")
    yield vault
    vault.close()


def files_with(folder: Path, text: str) -> list[str]:
    """The files that hold a text, or the unit vector that it was indexed with."""

    def read(path: Path) -> bytes:
        try:
            return content_of(path)
        except apsw.Error:
            # It was deleted meanwhile.
            return b""

    return sorted(path.name for path, content in files_below(folder, read) if text.encode() in content)


def pending(vault: SQLiteVault) -> int:
    return vault.collection(DOCUMENTS).removals_pending() + vault.events.status().removal_pending_count


def test_text_removed_in_any_way_leaves_every_file(vault: SQLiteVault, tmp_path: Path) -> None:
    records, statements = vault.collection(DOCUMENTS), vault.collection(SEMANTIC)
    words = ("amberword", "birchword", "cedarword", "dogword", "elderword", "figword", "grapeword", "hazelword")
    amber, birch, cedar, dog, elder, fig, grape, hazel = words
    records.put_document(write("a", f"{amber} " * 900, request=key("r"), metadata={"note": birch})).result()
    records.put_document(write("b", f"it was {cedar}", seed=1)).result()
    records.put_document(write("c", f"it was {dog}", seed=2, scope=Scope(user=elder))).result()
    records.put_document(write("d", "this stays", seed=3)).result()
    statements.put_document(statement("s", fig, terms=(fig,))).result()
    append(vault.events, happening("e", content=f"we saw {grape}", context=f"and {hazel}"), happening("f"))
    wait_until(lambda: vault.events.status().text_pending_count == 0)
    for word in words:
        assert files_with(tmp_path, word), word

    records.delete_document("a").result()
    rewritten = partial(replace, content="other")
    other = [part._replace(end=5) for part in write("b", seed=4).passages]
    news = ChangeType.KNOWLEDGE_INDEXED
    records.update_document(DocumentUpdate(doc_id="b", update=rewritten, passages=other, change=news)).result()
    records.delete_documents(RecordFilter(scope=Scope(user=elder))).result()

    def remove(tx: VaultTransaction) -> str:
        tx.collection(SEMANTIC).delete_document("s", change=None)
        return ""

    vault.transact(remove).result()
    vault.events.prune(get(vault.events, "e"), PruneReason.REQUESTED).result()
    wait_until(lambda: pending(vault) == 0)
    # The feed says whose document was removed.
    assert [word for word in words if files_with(tmp_path, word)] == [elder]
    assert files_with(tmp_path, "this stays")
    vectors = [unit_vector(seed).tobytes() for seed in range(4)]
    stored = content_of(tmp_path / "d" / "records.db")
    assert [vector in stored for vector in vectors] == [False, False, False, True]


def test_text_to_erase_is_counted_and_an_older_reader_delays_its_erasure(vault: SQLiteVault, tmp_path: Path) -> None:
    records = vault.collection(DOCUMENTS)
    records.put_document(write("a", "amberword")).result()
    reader = open_database(tmp_path / "d" / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM document").get == 1
    records.delete_document("a").result()
    for number in range(3):
        # Writes go on in the meantime.
        records.put_document(write("b", f"text {number}")).result()
    assert records.removals_pending() == 3
    assert files_with(tmp_path, "amberword")
    reader.execute("COMMIT")
    reader.close()
    wait_until(lambda: records.removals_pending() == 0)
    assert files_with(tmp_path, "amberword") == []
    assert records.get_documents(["b"])[0] is not None


def test_a_stream_of_deletions_does_not_empty_the_log_each_time(tmp_path: Path) -> None:
    delay_s, count = 0.5, 200
    vault = open_vault(tmp_path / "d", delay_s)
    records, log = vault.collection(DOCUMENTS), tmp_path / "d" / "records.db-wal"
    started, sizes = time.monotonic(), [0]
    for number in range(count):
        records.put_document(write(f"d{number}", f"amber{number}")).result()
        records.delete_document(f"d{number}").result()
        sizes.append(log.stat().st_size)
    took_s = time.monotonic() - started
    emptied = sum(after < before for before, after in pairwise(sizes))
    assert emptied <= took_s / delay_s + 1
    wait_until(lambda: records.removals_pending() == 0)
    assert [number for number in range(count) if files_with(tmp_path, f"amber{number}")] == []
    vault.close()


def test_text_removed_before_a_kill_is_erased_after_the_start(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.contract.test_sqlite_erasure import *\n"
        "vault = open_vault(Path(sys.argv[1]), 3600)\n"
        "records = vault.collection(DOCUMENTS)\n"
        "records.put_document(write('a', 'amberword')).result()\n"
        "records.put_document(write('b', 'birchword')).result()\n"
        "append(vault.events, happening('e', content='cedarword'))\n"
        "wait_until(lambda: vault.events.status().text_pending_count == 0)\n"
        "records.delete_document('a').result()\n"
        "vault.events.prune(get(vault.events, 'e'), PruneReason.REQUESTED).result()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = run_python(script, tmp_path / "d")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert files_with(tmp_path, "amberword") and files_with(tmp_path, "cedarword")
    vault = open_vault(tmp_path / "d")
    wait_until(lambda: pending(vault) == 0)
    assert (files_with(tmp_path, "amberword"), files_with(tmp_path, "cedarword")) == ([], [])
    assert files_with(tmp_path, "birchword")
    assert [one.content for one in vault.collection(DOCUMENTS).get_documents(["b"]) if isinstance(one, Document)]
    vault.close()


def test_removed_events_count_as_pending_until_their_file_is_deleted(tmp_path: Path) -> None:
    first = open_vault(tmp_path / "d", 3600, replace(SETTINGS, erase_delay_s=3600))
    append(first.events, happening("e", content="cedarword"))
    append(first.events, *(happening(f"f{number}") for number in range(SEGMENT_EVENTS_MAX)))
    wait_until(lambda: any(name.endswith(".segment") for name in files_with(tmp_path, "cedarword")))
    first.events.prune(get(first.events, "e"), PruneReason.REQUESTED).result()
    assert first.events.status().removal_pending_count == 1
    first.close()
    # After a restart, records.db itself holds no removed text that would be counted, too.
    vault = open_vault(tmp_path / "d")
    wait_until(lambda: pending(vault) == 0)
    assert files_with(tmp_path, "cedarword") == []
    vault.close()
