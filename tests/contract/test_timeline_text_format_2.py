"""Events whose words an older program indexed get the current ones, and are found as before meanwhile."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.events.rows import text_work
from mnemon_server.engines.events.rows.text_file import TextFile
from mnemon_server.engines.events.rows.text_words import CURRENT, FORMER, PART_SEQUENCES, answering
from mnemon_server.engines.events.rows.text_work import TextWork
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.support.databases import keys_of, open_database

IDENTITY = "vault model"
EMBEDDER = HashingEmbedder(16)


class Events:
    """A source whose events a test adds and removes."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.stored = dict(texts)
        self.last_sequence = max(texts)

    def last_given(self) -> int:
        return self.last_sequence

    def alive(self, first: int, last: int) -> Sequences:
        return np.array([each for each in self.stored if first <= each <= last], np.int64)

    def alive_among(self, sequences: Sequences) -> Sequences:
        return sequences[np.isin(sequences, list(self.stored))]

    def count_behind(self, sequence: int) -> int:
        return len(self.alive(sequence + 1, self.last_sequence))

    def texts(self, sequences: Sequence[int], length_max: int) -> dict[int, str]:
        return {each: self.stored[each] for each in sequences if each in self.stored}

    def add(self, text: str) -> int:
        self.last_sequence += 1
        self.stored[self.last_sequence] = text
        return self.last_sequence


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_work, "WORDS_AT_ONCE", 7)


@pytest.fixture
def embedded() -> list[str]:
    """The texts that were embedded."""
    return []


@pytest.fixture
def events() -> Events:
    """In two parts of the index."""
    first = PART_SEQUENCES - 20
    return Events({first + i: f"Das Haus{i} steht am HauptPlatz der Häuser" for i in range(40)})


@pytest.fixture
def work(tmp_path: Path, events: Events, embedded: list[str]) -> Iterator[TextWork]:
    """Works on a file of format 2 with all events."""
    path = tmp_path / "timeline-index" / "text.db"
    path.parent.mkdir()
    TextFile(path, IDENTITY, keys_of(path)).close()
    with closing(open_database(path)) as connection:
        connection.execute(CURRENT.drop_statement)
        connection.execute(FORMER.create_statement)
        for some in (range(PART_SEQUENCES), range(PART_SEQUENCES, 2 * PART_SEQUENCES)):
            FORMER.add(connection, {each: text for each, text in events.stored.items() if each in some})
        vectors = EMBEDDER.embed(list(events.stored.values())).astype("<f2")
        rows = [(each, vector.tobytes()) for each, vector in zip(events.stored, vectors, strict=True)]
        connection.executemany("INSERT INTO vector VALUES (?, ?)", rows)
        last = events.last_sequence
        meta = [("identity", f"2 {IDENTITY}"), (FORMER.progress_key, last), ("vectors", last)]
        connection.execute("DELETE FROM meta")
        connection.executemany("INSERT INTO meta VALUES (?, ?)", meta)
    opened = work_of(tmp_path, events, embedded)
    yield opened
    opened.close()


def work_of(folder: Path, events: Events, embedded: list[str]) -> TextWork:
    def embed(texts: Sequence[str]) -> Any:
        embedded.extend(texts)
        return EMBEDDER.embed(texts)

    return TextWork(VaultKeyFile(folder), events, identity=IDENTITY, embed=embed)


def follow(work: TextWork) -> TextFile:
    """Brings the index up to date with the events, without replacing former words."""
    while work.tend() or work.embed_some():
        pass
    assert work.file is not None
    return work.file


def found(work: TextWork, query: str, events: Events) -> list[int]:
    with follow(work).readers.lend() as connection:
        sequences, _ = answering(connection).search(connection, query, events.alive(0, events.last_sequence))
    return [int(each) for each in sequences]


def shape(path: Path) -> list[Any]:
    """The tables of a file, and what it says of itself."""
    with closing(open_database(path)) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        return [tables, connection.execute("SELECT * FROM meta ORDER BY key").fetchall()]


def test_the_former_words_answer_until_the_current_ones_are_complete(
    work: TextWork, events: Events, embedded: list[str], tmp_path: Path
) -> None:
    assert len(found(work, "hauptplatz", events)) == 40
    assert found(work, "haupt", events) == []
    work.replace_former()
    added = events.add("die HauptMauer")
    assert found(work, "hauptmauer", events) == [added]
    assert found(work, "haupt", events) == []
    while work.replace_former():
        pass
    assert found(work, "haupt", events) == list(events.stored)
    assert found(work, "Haus7", events) == [min(events.stored) + 7]
    assert embedded == ["die HauptMauer"]  # all other vectors are kept
    work.close()
    new = work_of(tmp_path / "new", events, embedded)
    follow(new)
    new.close()
    assert shape(tmp_path / "timeline-index" / "text.db") == shape(tmp_path / "new" / "timeline-index" / "text.db")


@pytest.mark.parametrize("seed", range(4))
def test_changes_while_words_are_replaced_are_neither_lost_nor_found_again(
    work: TextWork, events: Events, embedded: list[str], tmp_path: Path, seed: int
) -> None:
    rng, removed = random.Random(seed), set[int]()
    open_work = work
    while follow(open_work) and open_work.replace_former():
        if rng.random() < 0.3:
            events.add(f"Das Haus{rng.randrange(1000, 2000)} brennt")
        gone = rng.sample(sorted(events.stored), rng.randrange(3))
        for each in gone:
            del events.stored[each]
        removed.update(gone)
        if rng.random() < 0.3:  # as after a kill: nothing is held in memory
            open_work.close()
            open_work = work_of(tmp_path, events, embedded)
        else:
            open_work.note_removed(gone)
        assert found(open_work, " ".join(events.stored.values()), events) == list(events.stored)
        assert open_work.removed_count == 0
        with open_database(tmp_path / "timeline-index" / "text.db") as connection:
            for words in (each for each in (FORMER, CURRENT) if each.exist(connection)):
                for part in words.part_counts(connection):
                    held = words.stored(connection, part * PART_SEQUENCES, (part + 1) * PART_SEQUENCES - 1)
                    assert not removed & set(held.tolist())
    assert removed
    assert found(open_work, "hausen", events) == [each for each in events.stored if "Häuser" in events.stored[each]]
    open_work.close()


def test_a_file_with_former_words_that_loses_some_gets_them_again(
    work: TextWork, events: Events, embedded: list[str], tmp_path: Path
) -> None:
    file = follow(work)
    while not file.part_counts(CURRENT):
        work.replace_former()
    work.close()
    with open_database(tmp_path / "timeline-index" / "text.db") as connection:
        FORMER.remove(connection, 1, np.array([PART_SEQUENCES + 3]))
        CURRENT.remove(connection, 0, np.array([min(events.stored) + 1]))
    with closing(work_of(tmp_path, events, embedded)) as reopened:
        assert found(reopened, "hauptplatz", events) == list(events.stored)
        while reopened.replace_former():
            follow(reopened)
        assert found(reopened, "haupt", events) == list(events.stored)


def test_a_file_in_which_words_of_format_1_are_left_is_made_again(
    work: TextWork, events: Events, embedded: list[str], tmp_path: Path
) -> None:
    work.close()
    with closing(open_database(tmp_path / "timeline-index" / "text.db")) as connection:
        connection.execute("CREATE TABLE part (number INTEGER PRIMARY KEY, event_count INTEGER NOT NULL) STRICT")
    with closing(work_of(tmp_path, events, embedded)) as opened:
        assert found(opened, "haupt", events) == list(events.stored)
    assert embedded == list(events.stored.values())
