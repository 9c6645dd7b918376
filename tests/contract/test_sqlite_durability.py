"""What the records promise when processes are killed, disks fail or fill up, and the power fails."""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import apsw
import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import (
    ConfigurationError,
    EmbeddingModelMismatchError,
    MnemonError,
    RecordDamagedError,
    StorageFailedError,
    StorageFullError,
)
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.engines.layout import LAYOUT
from mnemon_server.engines.sqlite.schema import APPLICATION_ID
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.engines.vault_key import KEY_FILE

from tests.contract.vault_suite import DIMENSION, found_by_word, key, listed, unit_vector, write
from tests.support.cases import ordinary
from tests.support.databases import content_of, open_database
from tests.support.faulty_vfs import FaultyVFS
from tests.support.forks import python, run_python

TIMELINE_HEALTH = (ChangeType.EPISODIC_WARNING, ChangeType.EPISODIC_HEALTHY)
"""Its maintenance thread says what it meets on the disk."""

_NAMES = count()
KILLS = int(os.environ.get("MNEMON_RECORD_KILLS", "6"))

_WRITER = """
import sys
from pathlib import Path
from mnemon_server.domain.collections import DOCUMENTS
from tests.contract.test_sqlite_durability import open_vault
from tests.contract.record_engine import key, write
vault, start = open_vault(Path(sys.argv[1])), int(sys.argv[2])
records = vault.collection(DOCUMENTS)
print("open", flush=True)
for i in range(start, start + 100_000):
    name = f"d{i % 40}"
    if i % 9 == 8:
        records.delete_document(name, request=key(f"r{i}")).result()
        print(i, "-", name, flush=True)
    else:
        document = write(name, f"word{i} of text {i}", seed=i, parts=1 + i % 3, request=key(f"r{i}"))
        records.put_document(document).result()
        print(i, "+", name, flush=True)
"""


def open_vault(folder: Path, **options: object) -> SQLiteVault:
    return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, **options)  # type: ignore[arg-type]


def check_consistent(vault: SQLiteVault) -> None:
    """Checks that documents, passages, vectors, keyword rows and changes agree."""
    records = vault.collection(DOCUMENTS)
    documents = [document for _, document in records.list_documents(RecordFilter(), limit=10_000)]
    stats = records.stats()
    assert stats.document_count == len(documents)
    assert stats.passage_count == sum(len(document.passages) for document in documents)
    assert len(records.scan_vectors(unit_vector(0)).passage_ids) == stats.passage_count
    for document in documents:
        first = document.passages[0]
        assert document.doc_id in found_by_word(records, document.content[first.start : first.end])
    assert told_by_changes(vault) == {document.doc_id: document.revision for document in documents}


def told_by_changes(vault: SQLiteVault) -> dict[str, int]:
    """The documents and revisions according to the log alone. A missing or extra change shows in a revision."""
    told: dict[str, int] = {}
    log = vault.changes.read(0, limit=100_000, where=ChangeFilter())
    assert (len(log.changes), log.caught_up) == (vault.changes.state().count, True)
    for change in log.changes:
        if change.type in TIMELINE_HEALTH:
            continue
        if change.type is ChangeType.KNOWLEDGE_DELETED:
            assert told.pop(change.record_id) == change.revision
        else:
            assert change.revision == told.get(change.record_id, 0) + 1
            told[change.record_id] = change.revision
    times = [change.time for change in log.changes]
    assert times == sorted(times)
    return told


@pytest.fixture
def vfs() -> Iterator[FaultyVFS]:
    vfs = FaultyVFS(f"faulty-{next(_NAMES)}")
    yield vfs
    vfs.unregister()


def test_kill_9_loses_no_acknowledged_write(tmp_path: Path) -> None:
    rng = random.Random(7)
    expected: dict[str, int] = {}
    changed: set[str] = set()
    done = -1
    for _ in range(KILLS):
        with python(_WRITER, tmp_path / "d", str(done + 1)) as (process, printed):
            assert printed.readline() == "open\n"
            lines = [printed.readline() for _ in range(rng.randrange(1, 120))]
            process.kill()
            lines += printed.read().splitlines()
        for line in lines:
            number, sign, name = line.split()
            done = int(number)
            if sign == "+" or name in expected:
                changed.add(f"r{number}")
            if sign == "+":
                expected[name] = done
            else:
                expected.pop(name, None)

        vault = open_vault(tmp_path / "d")
        records = vault.collection(DOCUMENTS)
        contents = {d.doc_id: d.content for _, d in records.list_documents(RecordFilter(), limit=1000)}
        # The write in progress may be stored or not. Sent again with its request id, it is stored once.
        attempted = f"d{(done + 1) % 40}"
        settled = {name: f"word{i} of text {i}" for name, i in expected.items() if name != attempted}
        assert {name: text for name, text in contents.items() if name != attempted} == settled
        check_consistent(vault)
        told = Counter(
            change.request_id for change in vault.changes.read(0, limit=100_000, where=ChangeFilter()).changes
        )
        assert set(told.values()) <= {1}
        assert changed <= told.keys()
        vault.close()


def test_a_failed_sync_stops_all_writes_until_reopened(tmp_path: Path, vfs: FaultyVFS) -> None:
    vault = open_vault(tmp_path / "d", vfs=vfs.name)
    records = vault.collection(DOCUMENTS)
    records.put_document(write("before")).result()
    vfs.fail_sync_at = vfs.syncs + 1
    with pytest.raises(StorageFailedError):
        records.put_document(write("during", seed=1)).result()
    with pytest.raises(StorageFailedError):
        records.put_document(write("after", seed=2)).result()
    assert records.failure()
    assert [d.doc_id if d else None for d in records.get_documents(["before"])] == ["before"]

    records.recover()

    assert records.failure() is None
    records.put_document(write("later", seed=3)).result()
    assert {"before", "later"} <= set(listed(records)) <= {"before", "during", "later"}
    check_consistent(vault)
    vault.close()


def test_a_disk_that_keeps_failing_is_reported_until_it_recovers(tmp_path: Path, vfs: FaultyVFS) -> None:
    vault = open_vault(tmp_path / "d", vfs=vfs.name)
    records = vault.collection(DOCUMENTS)
    records.put_document(write("before")).result()
    vfs.fail_sync_at, vfs.failures = vfs.syncs + 1, 10_000
    with pytest.raises(StorageFailedError):
        records.put_document(write("during", seed=1)).result()
    for _ in range(3):
        with pytest.raises(StorageFailedError):
            records.recover()
        with pytest.raises(StorageFailedError):
            records.put_document(write("during", seed=1)).result()
        assert records.failure()
    vfs.fail_sync_at = 0
    records.recover()
    records.put_document(write("later", seed=2)).result()
    assert {"before", "later"} <= set(listed(records))
    check_consistent(vault)
    vault.close()


def test_no_failing_sync_loses_an_acknowledged_write(tmp_path: Path) -> None:
    for call in range(1, 40):
        vfs = FaultyVFS(f"sync-{call}")
        vfs.fail_sync_at = call
        folder = tmp_path / str(call)
        acknowledged = _write_some(folder, vfs)
        failed = vfs.syncs >= call
        vfs.unregister()
        if not folder.exists():
            continue
        vault = open_vault(folder)
        records = vault.collection(DOCUMENTS)
        assert acknowledged <= set(listed(records))
        check_consistent(vault)
        vault.close()
        if not failed:
            return
    pytest.fail("every run failed: the end was never reached")


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1_800)])])
def test_a_full_disk_at_any_write_loses_no_acknowledged_write(tmp_path: Path, step: int) -> None:
    for call in range(1, 2_000, step):
        vfs = FaultyVFS(f"full-{call}")
        vfs.fail_write_at = call
        folder = tmp_path / str(call)
        acknowledged = _write_some(folder, vfs)
        failed = vfs.writes >= call
        vfs.unregister()
        vault = open_vault(folder)
        records = vault.collection(DOCUMENTS)
        assert acknowledged <= set(listed(records))
        check_consistent(vault)
        vault.close()
        if not failed:
            return
    pytest.fail("every run failed: the end was never reached")


def test_a_full_disk_refuses_writes_until_there_is_space_again(tmp_path: Path, vfs: FaultyVFS) -> None:
    vault = open_vault(tmp_path / "d", vfs=vfs.name)
    records = vault.collection(DOCUMENTS)
    records.put_document(write("before", request=key("a"))).result()
    vfs.fail_write_at, vfs.failures = vfs.writes + 1, 10_000
    for _ in range(3):
        with pytest.raises(StorageFullError, match="no space"):
            records.put_document(write("during", seed=1, request=key("b"))).result()
    assert listed(records) == ["before"]
    assert "no space" in (records.failure() or "")
    with pytest.raises(StorageFullError, match="no space"):
        records.recover()
    vfs.fail_write_at = 0
    records.recover()
    assert records.failure() is None
    assert not records.put_document(write("during", seed=1, request=key("b"))).result().replayed
    assert listed(records) == ["before", "during"]
    check_consistent(vault)
    vault.close()


@pytest.mark.parametrize("seed", ordinary(range(25)))
def test_a_power_cut_loses_no_acknowledged_write(tmp_path: Path, vfs: FaultyVFS, seed: int) -> None:
    rng = random.Random(seed)
    vault = open_vault(tmp_path / "d", vfs=vfs.name)
    records = vault.collection(DOCUMENTS)
    acknowledged: dict[str, str] = {}
    for i in range(rng.randrange(5, 60)):
        name, content = f"d{rng.randrange(12)}", f"word{i} and more " * rng.choice([1, 200])
        if rng.random() < 0.2:
            records.delete_document(name).result()
            acknowledged.pop(name, None)
        else:
            records.put_document(write(name, content, seed=i, parts=2)).result()
            acknowledged[name] = content
    vfs.power_cut(tmp_path / "after", rng)
    shutil.copy(tmp_path / "d" / KEY_FILE, tmp_path / "after")
    vault.close()

    vault = open_vault(tmp_path / "after")
    records = vault.collection(DOCUMENTS)
    assert {d.doc_id: d.content for _, d in records.list_documents(RecordFilter(), limit=100)} == acknowledged
    check_consistent(vault)
    vault.close()


def test_a_failing_write_does_not_undo_others_of_its_transaction(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "d")
    records = vault.collection(DOCUMENTS)
    futures: list[Future[WriteReceipt]] = []
    for i in range(50):
        futures.append(records.put_document(write(f"good{i}", seed=i)))
        futures.append(records.put_document(write(f"bad{i}", seed=i, expected_revision=9)))
    wait(futures)
    assert sorted(listed(records)) == sorted(f"good{i}" for i in range(50))
    assert sum(future.exception() is not None for future in futures) == 50
    check_consistent(vault)
    vault.close()


def test_a_document_that_cannot_be_stored_does_not_undo_those_put_with_it(tmp_path: Path) -> None:
    with closing(open_vault(tmp_path)) as vault:
        records = vault.collection(DOCUMENTS)
        unpaired = replace(write("bad", "zebra"), document=Document("bad", "\ud800"))
        writes = [write("a", "lion", request=key("a")), unpaired, write("c", "tiger", seed=2)]

        first, failed, last = records.put_documents(writes).result()

        assert isinstance(failed, UnicodeEncodeError)
        assert isinstance(first, WriteReceipt)
        assert isinstance(last, WriteReceipt)
        assert listed(records) == ["a", "c"]
        assert records.put_document(writes[0]).result() == replace(first, replayed=True)
        check_consistent(vault)


def test_documents_put_together_share_a_sync_and_are_each_a_commit(tmp_path: Path, vfs: FaultyVFS) -> None:
    with closing(open_vault(tmp_path, vfs=vfs.name)) as vault:
        records = vault.collection(DOCUMENTS)
        syncs = vfs.syncs
        receipts = records.put_documents([write(f"d{i}", seed=i, request=key(f"r{i}")) for i in range(50)]).result()
        changes = vault.changes.read(0, limit=100, where=ChangeFilter()).changes

        assert vfs.syncs - syncs < 10
        assert [change.commit for change in changes] == [receipt.sequence for receipt in receipts]
        assert [change.request_id for change in changes] == [f"r{i}" for i in range(50)]
        check_consistent(vault)


def test_concurrent_writes_share_a_sync(tmp_path: Path, vfs: FaultyVFS) -> None:
    vault = open_vault(tmp_path / "d", vfs=vfs.name)
    records = vault.collection(DOCUMENTS)
    before = vfs.syncs
    wait([records.put_document(write(f"d{i}", seed=i)) for i in range(200)])
    assert vfs.syncs - before < 100
    assert len(listed(records)) == 200
    vault.close()


def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "d")
    records = vault.collection(DOCUMENTS)
    script = (
        "import sys; from pathlib import Path; from tests.contract.test_sqlite_durability import open_vault\n"
        "try: open_vault(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    output = run_python(script, tmp_path / "d").stdout
    assert output.startswith("FolderInUseError")
    assert "in use by another process" in output
    records.put_document(write("a")).result()
    vault.close()


def test_a_store_of_another_model_is_refused(tmp_path: Path) -> None:
    open_vault(tmp_path / "d").close()
    with pytest.raises(EmbeddingModelMismatchError, match="mnemon-server reembed"):
        SQLiteVault(tmp_path / "d", model_identity="other/1", dimension=DIMENSION)
    open_vault(tmp_path / "d").close()


def make_plain(file: Path) -> None:
    """Writes a database as an early version did, without a key."""
    file.unlink()
    (file.parent / "vault.key").unlink()
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("CREATE TABLE meta (key, value)")
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", 1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (f"PRAGMA user_version = {LAYOUT + 1}", "a newer Mnemon wrote it"),
        (f"PRAGMA user_version = {LAYOUT - 1}", "with that version, by `mnemon export`"),
        ("PRAGMA application_id = 1", "not a database of Mnemon"),
        (make_plain, "with that version, by `mnemon export`"),
    ],
)
def test_a_file_of_another_layout_is_refused_and_left_untouched(
    tmp_path: Path, change: str | Callable[[Path], None], sentence: str
) -> None:
    open_vault(tmp_path / "d").close()
    file = tmp_path / "d" / "records.db"
    if isinstance(change, str):
        with closing(open_database(file)) as connection:
            connection.execute(change)
    else:
        change(file)
    before = file.read_bytes()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=sentence):
            open_vault(tmp_path / "d")
    assert file.read_bytes() == before


def test_a_damaged_file_is_refused_or_read_correctly_but_never_crashes(tmp_path: Path) -> None:
    """One process reads all the files. If one crashes it, the output shows which."""
    with closing(open_vault(tmp_path / "d")) as vault:
        records = vault.collection(DOCUMENTS)
        for i in range(30):
            records.put_document(write(f"d{i}", f"word{i} text", seed=i)).result()
    sound = (tmp_path / "d" / "records.db").read_bytes()
    folders = [tmp_path / str(seed) for seed in range(30)]
    for seed, folder in enumerate(folders):
        rng = random.Random(seed)
        content = bytearray(sound)
        for _ in range(rng.randrange(1, 200)):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        shutil.copytree(tmp_path / "d", folder, ignore=shutil.ignore_patterns("LOCK"))
        (folder / "records.db").write_bytes(content)
    script = (
        "import sys; from pathlib import Path; from tests.contract.test_sqlite_durability import read_damaged\n"
        "for name in sys.argv[1:]: print(name, read_damaged(Path(name)), flush=True)"
    )
    done = run_python(script, *folders)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(folders)


def read_damaged(folder: Path) -> str:
    """Opens and reads a damaged store. Only errors of the product and of the file's reader may be raised."""
    try:
        vault = open_vault(folder)
        records = vault.collection(DOCUMENTS)
    except MnemonError as error:
        return type(error).__name__
    try:
        listed(records)
        records.scan_vectors(unit_vector(1))
        records.search_keywords("word1 text")
    except (RecordDamagedError, apsw.Error) as error:
        return type(error).__name__
    finally:
        vault.close()
    return "read"


def test_deleted_text_is_no_longer_in_the_files(tmp_path: Path) -> None:
    vault = open_vault(tmp_path / "d")
    records = vault.collection(DOCUMENTS)
    for i in range(20):
        records.put_document(write(f"kept{i}", f"ordinary text {i}", seed=i)).result()
    records.put_document(write("gone", "xylophonequartz " * 40, seed=99, metadata={"canary": "zirconiumtext"})).result()
    records.delete_document("gone").result()
    vault.close()
    for path in [path for path in (tmp_path / "d").rglob("*") if path.is_file()]:
        content = content_of(path)
        assert b"xylophonequartz" not in content
        assert b"zirconiumtext" not in content
        assert unit_vector(99).tobytes() not in content


def _write_some(folder: Path, vfs: FaultyVFS) -> set[str]:
    """Opens and writes until something fails. Returns what was acknowledged."""
    acknowledged: set[str] = set()
    try:
        vault = open_vault(folder, vfs=vfs.name)
        records = vault.collection(DOCUMENTS)
    except (MnemonError, apsw.Error):
        return acknowledged
    try:
        for i in range(12):
            records.put_document(write(f"d{i}", f"word{i} text", seed=i)).result()
            acknowledged.add(f"d{i}")
    except MnemonError:
        pass
    finally:
        vault.close()
    return acknowledged
