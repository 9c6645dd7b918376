"""The pages of a vault's databases are authenticated: what was not written is never an answer."""

import logging
import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.damage import CommitsLostError, PageDamagedError
from mnemon_server.domain.errors import ConfigurationError, RecordDamagedError, StorageFailedError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.sqlite.pages.database import MODE_READ, WrongKeyError
from mnemon_server.engines.sqlite.pages.mark import MARK_FILE, read_mark, stored_commits
from mnemon_server.engines.sqlite.pages.page_file import PageFile
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.engines.vault_key import KEY_FILE, KeyDamagedError, KeyLostError, VaultKey, VaultKeyFile

from tests.contract.vault_suite import DIMENSION, listed, write
from tests.support.databases import contents_of, open_database
from tests.support.server import wait_until

COUNT = 200
PAGE = 4_096
TEXT = "a text that stands in its page "


def open_vault(folder: Path, **settings: float) -> SQLiteVault:
    return SQLiteVault(
        folder,
        model_identity=f"test/{DIMENSION}",
        dimension=DIMENSION,
        settings=VaultSettings(**settings),  # type: ignore[arg-type]
    )


def contents(vault: SQLiteVault) -> dict[str, str]:
    found = vault.collection(DOCUMENTS).list_documents(RecordFilter(), limit=2 * COUNT)
    return {document.doc_id: document.content for _, document in found}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "vault"
    with closing(open_vault(folder)) as vault:
        puts = [write(f"d{i}", f"{TEXT}{i} " * 20, seed=i) for i in range(COUNT)]
        vault.collection(DOCUMENTS).put_documents(puts).result()
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Iterator[Path]:
    return shutil.copytree(sound, tmp_path / "vault")


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def damages(folder: Path) -> list[str]:
    with RecordsVerifier(folder / "records.db", VaultKeyFile(folder)) as verifier:
        return [str(damage) for step in verifier.run() for damage in step.damages]


def key_of(folder: Path) -> VaultKey:
    key = VaultKeyFile(folder).find()
    assert key
    return key


def page_of(folder: Path, text: str) -> int:
    """The page that a text is in."""
    with closing(open_database(folder / "records.db")) as connection:
        file = PageFile(connection)
        return next(number for number in range(1, file.count + 1) if text.encode() in file.read(number, 1))


# The key


def test_no_text_is_in_the_files_for_those_without_the_key(folder: Path) -> None:
    raw = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert TEXT.encode() not in raw
    assert TEXT.encode() in contents_of(folder)
    assert (folder / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_lost_wrong_or_damaged_key_is_told_apart_and_nothing_changes(folder: Path, tmp_path: Path) -> None:
    records, key = folder / "records.db", folder / KEY_FILE
    kept, before = key.read_bytes(), records.read_bytes()
    open_vault(tmp_path / "other").close()
    text = kept.splitlines()[0].decode().rpartition(" ")[0].replace("key/1", "key/3")
    newer = 2 * f"{text} {sha256(text.encode()).hexdigest()[:16]}\n".encode()
    cases: list[tuple[bytes | None, type[ConfigurationError], str]] = [
        (None, KeyLostError, "vault.key, which is missing"),
        ((tmp_path / "other" / KEY_FILE).read_bytes(), WrongKeyError, "another key than that in vault.key"),
        (bytes(len(kept)), KeyDamagedError, "vault.key is damaged"),
        (newer, ConfigurationError, "a newer Mnemon wrote it"),
    ]
    for content, error, sentence in cases:
        key.unlink() if content is None else key.write_bytes(content)
        with pytest.raises(error, match=sentence):
            open_vault(folder)
        assert records.read_bytes() == before
        assert key.exists() == (content is not None)
        key.write_bytes(kept)
    with closing(open_vault(folder)) as vault:
        assert len(contents(vault)) == COUNT


@pytest.mark.parametrize("place", [3, 30, 80, 100, 150])
def test_one_flipped_bit_in_the_key_is_repaired_and_told(folder: Path, place: int) -> None:
    key = folder / KEY_FILE
    kept = key.read_bytes()
    flip(key, place)
    assert damages(folder) == ["vault.key: one of the two copies of the key in it is damaged"]
    with closing(open_vault(folder)) as vault:
        assert len(contents(vault)) == COUNT
    assert key.read_bytes() == kept
    assert damages(folder) == []


# Pages


def test_a_damaged_page_is_named_and_other_records_are_read_and_written(folder: Path) -> None:
    number = page_of(folder, f"{TEXT}77 ")
    flip(folder / "records.db", (number - 1) * PAGE + 2_000)
    assert f"page {number}: it is not what was written" in damages(folder)
    with closing(open_vault(folder)) as vault:
        records = vault.collection(DOCUMENTS)
        with pytest.raises(PageDamagedError, match=f"page {number} of records.db is damaged"):
            records.get_documents(["d77"])
        refused = records.put_document(write("d77", "anew"))
        accepted = records.put_document(write("new", "still accepted", seed=3))
        with pytest.raises(PageDamagedError, match=f"page {number} of records.db"):
            refused.result()
        accepted.result()
        assert vault.failure() is None
        [found] = records.get_documents(["new"])
        assert found is not None
        assert found.content == "still accepted"


def test_no_flipped_bit_changes_an_answer(folder: Path) -> None:
    """Every page once, and every byte of the beginning of the file, which the library itself does not authenticate."""
    file = folder / "records.db"
    content = file.read_bytes()
    with closing(open_vault(folder)) as vault:
        expected = contents(vault)
    content = file.read_bytes()
    rng = random.Random(5)
    places = [*range(25), *(rng.randrange(start, start + PAGE) for start in range(0, len(content), PAGE * 12))]
    refused = 0
    for place in places:
        file.write_bytes(content)
        flip(file, place, rng.randrange(8))
        found = read_all(file)
        if found is None:
            refused += 1
        else:
            assert found == expected, place
        assert damages_or_refusal(folder), place
    assert refused > 9


def read_all(file: Path) -> dict[str, str] | None:
    """All documents, as a server reads them; None if that is refused."""
    try:
        with closing(open_vault(file.parent)) as vault:
            return contents(vault)
    except RecordDamagedError:
        return None


def damages_or_refusal(folder: Path) -> list[str]:
    try:
        return damages(folder)
    except (RecordDamagedError, StorageFailedError) as error:
        return [str(error)]


def test_two_pages_that_were_exchanged_are_damage(folder: Path) -> None:
    file = folder / "records.db"
    content = file.read_bytes()
    first, second = (page_of(folder, f"{TEXT}{i} ") for i in (20, 170))
    assert first != second
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    pages[first - 1], pages[second - 1] = pages[second - 1], pages[first - 1]
    file.write_bytes(b"".join(pages))
    assert {f"page {number}: it is not what was written" for number in (first, second)} <= set(damages(folder))
    with closing(open_vault(folder)) as vault, pytest.raises(PageDamagedError):
        contents(vault)


# The write-ahead log


@pytest.fixture
def killed(folder: Path, tmp_path: Path) -> tuple[Path, int]:
    """A vault with twenty commits in its log, as a kill leaves it; and how many of them its mark knows of."""
    copy = tmp_path / "killed"
    with closing(open_vault(folder, erasure_delay_s=600.0)) as vault:
        records = vault.collection(DOCUMENTS)
        for i in range(20):
            records.put_document(write(f"late{i}", f"late {i}", seed=i)).result()
        with closing(open_database(folder / "records.db", flags=MODE_READ)) as connection:
            stored = stored_commits(connection)
        # The mark of the last commits follows them.
        wait_until(lambda: read_mark(folder, key_of(folder)) == (stored, True))
        shutil.copytree(folder, copy)
    return copy, 20


def test_a_log_that_lost_commits_is_refused_with_both_numbers(killed: tuple[Path, int]) -> None:
    folder, count = killed
    log = folder / "records.db-wal"
    with closing(open_vault(shutil.copytree(folder, folder.with_name("sound")))) as vault:
        assert len([each for each in listed(vault.collection(DOCUMENTS)) if each.startswith("late")]) == count
    content, rng = log.read_bytes(), random.Random(7)
    for place in [5, 20, *(rng.randrange(32, len(content) // 2) for _ in range(6))]:
        damaged = shutil.copytree(folder, folder.with_name(f"at-{place}"))
        flip(damaged / "records.db-wal", place)
        for _ in range(2):
            # A refusal changes nothing, so the next attempt is also refused.
            with pytest.raises(CommitsLostError) as caught:
                open_vault(damaged)
            assert 0 <= caught.value.found < caught.value.stored
            assert f"{caught.value.found:,} commits, and at least {caught.value.stored:,}" in str(caught.value)
        assert (damaged / "records.db-wal").stat().st_size == len(content)
        assert any("commits" in each for each in damages(damaged))
        # The advice in the message opens the vault with the remaining commits.
        (damaged / MARK_FILE).unlink()
        open_vault(damaged).close()


def test_a_damaged_mark_is_told_and_written_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="mnemon_server")
    for place in (3, 520):
        flip(folder / MARK_FILE, place)
        assert damages(folder) == [f"{MARK_FILE}: it is not what was written"]
        with closing(open_vault(folder)) as vault:
            assert len(contents(vault)) == COUNT
        assert damages(folder) == []
    assert "records.mark was damaged" in caplog.text


def test_a_vault_that_was_put_back_is_older_than_its_mark(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "records.db", tmp_path / "older.db")
    with closing(open_vault(folder)) as vault:
        vault.collection(DOCUMENTS).put_document(write("later", "later")).result()
    shutil.copy(tmp_path / "older.db", folder / "records.db")
    with pytest.raises(CommitsLostError, match=r"delete records\.mark"):
        open_vault(folder)


def test_a_copy_that_was_made_while_the_vault_was_written_is_refused_with_advice(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with closing(open_vault(folder, erasure_delay_s=600.0)) as vault:
        # Whoever copies files one after the other gets the mark of later commits with an earlier log.
        shutil.copytree(folder, copy)
        vault.collection(DOCUMENTS).put_document(write("later", "later")).result()
        wait_until(lambda: read_mark(folder, key_of(folder)) > read_mark(copy, key_of(copy)))
        shutil.copy(folder / MARK_FILE, copy)
    with pytest.raises(CommitsLostError, match="copy the folder again while no server uses it"):
        open_vault(copy)
