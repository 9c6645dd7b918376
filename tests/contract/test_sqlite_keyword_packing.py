"""Packed words: the same results as without packing, whatever happens meanwhile, and nothing of what was deleted."""

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import apsw
import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.sqlite.keywords import blocks as packed_blocks
from mnemon_server.engines.sqlite.keywords import fts, index, merging, packing
from mnemon_server.engines.sqlite.keywords.packing import PackingRound
from mnemon_server.engines.sqlite.upkeep import packing as upkeep_packing
from mnemon_server.engines.sqlite.upkeep import verification
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.contract.vault_suite import DIMENSION, write
from tests.support.cases import ordinary
from tests.support.databases import contents_of, open_database
from tests.support.forks import FORKS
from tests.support.keywords import search
from tests.support.server import wait_until

WORDS = [f"{first}{second}" for first in ("am", "bir", "ced", "dog", "eld") for second in ("ber", "ter", "nel", "rim")]
QUERIES = ("amber birter", "cednel dogrim elder missing", "what is the amter")
TABLES = fts.KeywordTables("reference")
SMALL = [
    (index, "PACKED_MIN", 40),
    (packed_blocks, "BLOCK_IDS", 150),
    (merging, "MOVED_ROWS", 3),
    (verification, "PASSAGE_IDS", 64),
    (upkeep_packing, "CHECK_ROWS", 1),
    (packing, "READ_WORDS", 3),
    (packing, "WRITTEN_ROWS", 2),
]
"""Small tables, and many steps for each."""

KILLS = int(os.environ.get("MNEMON_RECORD_KILLS", "4"))


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[SQLiteVault]:
    opened = open_vault(tmp_path / "d")
    yield opened
    opened.close()


def open_vault(folder: Path) -> SQLiteVault:
    return SQLiteVault(
        folder, model_identity=f"test/{DIMENSION}", dimension=DIMENSION, settings=VaultSettings(erasure_delay_s=0.05)
    )


def put(records: RecordEngine, texts: dict[str, str], rng: random.Random) -> None:
    """Puts random texts under ids that are new or not."""
    for _ in range(30):
        doc_id = f"d{rng.randrange(200)}"
        texts[doc_id] = " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))
        records.put_document(write(doc_id, texts[doc_id], scope=Scope(user=f"u{rng.randrange(3)}"))).result()


def delete(records: RecordEngine, texts: dict[str, str], rng: random.Random, count: int) -> None:
    for doc_id in rng.sample(sorted(texts), min(count, len(texts))):
        records.delete_document(doc_id).result()
        del texts[doc_id]


def check_searches(records: RecordEngine, texts: dict[str, str]) -> None:
    """Searches find what a single table with the same passages finds, with the same scores."""
    places = records.locate_passages(records.match_passages(RecordFilter()).tolist())
    stored = {place.passage_id: texts[place.doc_id] for place in places}
    assert len(stored) == len(texts)
    reference = apsw.Connection(":memory:")
    for statement in fts.create_statements(TABLES):
        reference.execute(statement)
    fts.insert(reference, TABLES, stored)
    for query in QUERIES:
        for part in (slice(None), slice(None, None, 3), slice(1, None, 17), slice(-3, None)):
            among = None if part == slice(None) else np.array(sorted(stored)[part], np.int64)
            expected = search(reference, TABLES, query, among)
            found = records.search_keywords(query, among)
            assert found.passage_ids.tolist() == expected.passage_ids.tolist()
            assert found.scores.tolist() == pytest.approx(expected.scores.tolist(), rel=1e-9)
    reference.close()


def blocks(folder: Path, *, served: int = 1) -> int:
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    [(count,)] = connection.execute(
        "SELECT count(*) FROM document_compound_keyword_block WHERE served = ?", (served,)
    ).fetchall()
    connection.close()
    return int(count)


def merged_blocks(folder: Path) -> int:
    """The number of blocks whose words are being moved to another one."""
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    statement = "SELECT count(*) FROM document_compound_keyword_block WHERE served = 1 AND passage_count = 0"
    [(count,)] = connection.execute(statement).fetchall()
    connection.close()
    return int(count)


def problems(folder: Path) -> list[str]:
    with RecordsVerifier(folder / "records.db", VaultKeyFile(folder)) as verifier:
        return [str(damage) for step in verifier.run() for damage in step.damages]


@pytest.mark.parametrize("seed", ordinary(range(4), 2))
def test_searches_are_the_same_while_words_are_packed(tmp_path: Path, vault: SQLiteVault, seed: int) -> None:
    records, rng, texts = vault.collection(DOCUMENTS), random.Random(seed), dict[str, str]()
    for _ in range(12):
        put(records, texts, rng)
        delete(records, texts, rng, rng.randrange(12))
        check_searches(records, texts)
    wait_until(lambda: blocks(tmp_path / "d") > 1)
    check_searches(records, texts)
    delete(records, texts, rng, 500)
    check_searches(records, {})
    vault.close()
    assert problems(tmp_path / "d") == []
    assert blocks(tmp_path / "d") == 0


@pytest.mark.parametrize("seed", ordinary(range(4), 2))
def test_what_is_deleted_during_a_round_is_not_packed(
    tmp_path: Path, vault: SQLiteVault, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading words and writing them, too."""
    monkeypatch.setattr(upkeep_packing, "CHECK_ROWS", 1 << 40)  # the vault's own thread stays away
    records, rng, texts = vault.collection(DOCUMENTS), random.Random(seed), dict[str, str]()
    put(records, texts, rng)
    put(records, texts, rng)

    def between_steps() -> bool:
        delete(records, texts, rng, 1)
        check_searches(records, texts)
        return False

    run_round(vault, between_steps)
    check_searches(records, texts)
    assert blocks(tmp_path / "d") == 1
    vault.close()
    assert problems(tmp_path / "d") == []


def test_a_round_that_was_interrupted_leaves_nothing_behind(
    tmp_path: Path, vault: SQLiteVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_packing, "CHECK_ROWS", 1 << 40)
    records, rng, texts = vault.collection(DOCUMENTS), random.Random(5), dict[str, str]()
    put(records, texts, rng)
    put(records, texts, rng)
    for steps in range(1, 6):
        left = iter(range(steps))
        run_round(vault, lambda left=left: next(left, None) is None)  # type: ignore[misc]
        assert (blocks(tmp_path / "d"), blocks(tmp_path / "d", served=0)) == (0, 1)
        delete(records, texts, rng, 1)
        check_searches(records, texts)
    vault.close()
    assert problems(tmp_path / "d") == []
    reopened = open_vault(tmp_path / "d")
    wait_until(lambda: (blocks(tmp_path / "d"), blocks(tmp_path / "d", served=0)) == (1, 0))
    check_searches(reopened.collection(DOCUMENTS), texts)
    reopened.close()
    assert problems(tmp_path / "d") == []


@pytest.mark.parametrize("seed", ordinary(range(2), 1))
def test_what_is_deleted_while_blocks_are_merged_stays_deleted(
    tmp_path: Path, vault: SQLiteVault, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches are the same after each step, and no word is left behind in either of the two places."""
    monkeypatch.setattr(upkeep_packing, "CHECK_ROWS", 1 << 40)  # the vault's own thread stays away
    records, rng, texts = vault.collection(DOCUMENTS), random.Random(seed), dict[str, str]()
    for _ in range(8):
        put(records, texts, rng)
        run_round(vault, lambda: False)
    before = blocks(tmp_path / "d")
    assert merge_some(vault)
    for steps in count():
        if steps % 3 == 0:
            check_searches(records, texts)
            delete(records, texts, rng, 2)
            check_searches(records, texts)
            assert problems(tmp_path / "d") == []
        if steps == 4:
            # Others are packed meanwhile.
            put(records, texts, rng)
            put(records, texts, rng)
            run_round(vault, lambda: False)
        if not merge_some(vault):
            break
    assert before >= 4
    assert blocks(tmp_path / "d") < before
    assert steps > 10
    delete(records, texts, rng, 500)
    vault.close()
    assert contents_count(tmp_path / "d") == (0, 0)


def test_blocks_whose_passages_are_all_deleted_while_they_are_merged_are_gone(
    tmp_path: Path, vault: SQLiteVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep_packing, "CHECK_ROWS", 1 << 40)
    records, rng, texts = vault.collection(DOCUMENTS), random.Random(3), dict[str, str]()
    for _ in range(8):
        put(records, texts, rng)
        run_round(vault, lambda: False)
    for _ in range(4):
        assert merge_some(vault)
    delete(records, texts, rng, 500)
    check_searches(records, {})
    vault.close()
    assert problems(tmp_path / "d") == []
    assert contents_count(tmp_path / "d") == (0, 0)


def merge_some(vault: SQLiteVault) -> bool:
    tables = vault.collection(DOCUMENTS)._tables.keywords.blocks
    return vault._connections.submit(lambda connection: merging.merge_some(connection, tables)).result()


def contents_count(folder: Path) -> tuple[int, int]:
    """The number of blocks, and of their rows."""
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    [(count,)] = connection.execute("SELECT count(*) FROM document_compound_keyword_block").fetchall()
    [(rows,)] = connection.execute("SELECT count(*) FROM document_compound_keyword").fetchall()
    connection.close()
    return int(count), int(rows)


def run_round(vault: SQLiteVault, is_stopped: Callable[[], bool]) -> None:
    PackingRound(vault._connections, vault.collection(DOCUMENTS)._tables.keywords, is_stopped).run()


def test_kill_9_while_words_are_packed_loses_no_word(tmp_path: Path) -> None:
    """Nor does it bring back the words of a deletion that was acknowledged."""
    folder, rng, texts, interrupted = tmp_path / "d", random.Random(11), dict[str, str](), set[tuple[int, bool]]()
    both = {(0, True), (1, True)}
    # On a busy machine, what a kill would interrupt may have ended before.
    for number in range(10 * KILLS):
        if number >= KILLS and both <= interrupted:
            break
        ours, theirs = FORKS.Pipe()
        process = FORKS.Process(target=_write_until_killed, args=(folder, number, texts, theirs), daemon=True)
        process.start()
        theirs.close()
        attempted = ours.recv()
        # Every other time while blocks are merged.
        in_work = merged_blocks if number % 2 else partial(blocks, served=0)
        attempted = _acknowledged(ours, texts, attempted, more=400, until=lambda: in_work(folder) > 0)  # noqa: B023
        attempted = _acknowledged(ours, texts, attempted, more=rng.randrange(8))
        process.kill()
        attempted = _acknowledged(ours, texts, attempted)
        process.join()
        interrupted.add((number % 2, in_work(folder) > 0))

        with closing(open_vault(folder)) as vault:
            records = vault.collection(DOCUMENTS)
            [document] = records.get_documents([attempted])  # it may be stored or not
            texts.pop(attempted, None)
            if document is not None:
                texts[attempted] = document.content
            check_searches(records, texts)
            wait_until(lambda: blocks(folder, served=0) + merged_blocks(folder) == 0)
            check_searches(records, texts)
        assert problems(folder) == []
    assert both <= interrupted


def _write_until_killed(folder: Path, seed: int, texts: dict[str, str], acknowledged: Connection) -> None:
    """Puts and deletes documents, while their words are packed. Sends each id before the write, and the text, or None,
    after it.
    """
    for module, name, value in SMALL:
        setattr(module, name, value)
    records, rng, stored = open_vault(folder).collection(DOCUMENTS), random.Random(seed), set(texts)
    for number in count():
        doc_id, text = f"d{rng.randrange(200)}", f"{' '.join(rng.choices(WORDS, k=5))} {seed} {number}"
        acknowledged.send(doc_id)
        if doc_id in stored and rng.random() < 0.4:
            records.delete_document(doc_id).result()
            stored.remove(doc_id)
            acknowledged.send(None)
        else:
            records.put_document(write(doc_id, text)).result()
            stored.add(doc_id)
            acknowledged.send(text)


def _acknowledged(
    writer: Connection,
    texts: dict[str, str],
    attempted: str,
    *,
    more: int = 1_000_000,
    until: Callable[[], bool] = lambda: False,
) -> str:
    """Adds up to `more` acknowledged writes to `texts`: until a condition holds, or the writer has ended. Returns the
    id of the write in progress, if there is one.
    """
    for _ in range(more):
        if until():
            break
        try:
            attempted = attempted or writer.recv()
            text = writer.recv()
        except EOFError:
            break
        if text is None:
            del texts[attempted]
        else:
            texts[attempted] = text
        attempted = ""
    return attempted


def test_words_that_were_packed_and_deleted_leave_the_files(tmp_path: Path, vault: SQLiteVault) -> None:
    records = vault.collection(DOCUMENTS)
    secrets = {f"d{i}": hashlib.sha256(str(i).encode()).hexdigest()[:20] for i in range(100)}
    for doc_id, secret in secrets.items():
        records.put_document(write(doc_id, f"common words {secret}")).result()
    wait_until(lambda: blocks(tmp_path / "d") > 0)
    gone = [secrets[doc_id] for doc_id in sorted(secrets)[::2]]
    for doc_id in sorted(secrets)[::2]:
        records.delete_document(doc_id).result()
    wait_until(lambda: records.removals_pending() == 0)
    stored = contents_of(tmp_path / "d")
    assert [secret for secret in gone if secret.encode() in stored] == []
    assert any(secret.encode() in stored for secret in secrets.values())


def test_damaged_packed_words_are_reported(tmp_path: Path, vault: SQLiteVault) -> None:
    records = vault.collection(DOCUMENTS)
    put(records, {}, random.Random(1))
    put(records, {}, random.Random(2))
    wait_until(lambda: blocks(tmp_path / "d") > 0)
    vault.close()
    assert problems(tmp_path / "d") == []
    connection = open_database(tmp_path / "d" / "records.db")
    connection.execute("UPDATE document_compound_keyword SET passages = substr(passages, 5) WHERE word = 'amber'")
    connection.close()
    [problem] = problems(tmp_path / "d")
    assert problem.startswith("document_compound_keyword block")
    assert "1 of its words" in problem
