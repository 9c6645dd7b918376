"""Events are found by text whatever happened to the index, and no byte of it holds a pruned event."""

import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.domain.events import EventSelection, PruneReason
from mnemon_server.domain.records import Scope, SearchMode
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.events import text
from mnemon_server.engines.events.text_thread import TextThread
from mnemon_server.engines.events.text_words import PART_SEQUENCES
from mnemon_server.engines.events.text_work import EmbedTexts, StoredTexts, TextWork
from mnemon_server.engines.promises.events import EventEngine, Sequences, TextScores
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.contract.timeline_suite import ALL, SETTINGS, append, get, happening
from tests.contract.vault_suite import ManualClock
from tests.support.databases import contents_of, open_database
from tests.support.forks import python
from tests.support.server import wait_until

DIMENSION = 16
EMBEDDER = HashingEmbedder(DIMENSION)
OpenTimeline = Callable[..., EventEngine]


@pytest.fixture
def open_timeline(tmp_path: Path) -> Iterator[OpenTimeline]:
    """Opens the timeline of a folder. Closes it first if it is open."""
    opened: list[SQLiteVault] = []

    def open_it(folder: str = "vault", embed: EmbedTexts | None = None) -> EventEngine:
        if opened:
            opened.pop().close()
        vault = SQLiteVault(
            tmp_path / folder,
            model_identity="hashing/1",
            dimension=DIMENSION,
            clock=ManualClock(),
            settings=VaultSettings(events=SETTINGS, erasure_delay_s=0.05),
            embed_events=embed,
        )
        opened.append(vault)
        assert vault.events.wait_until_warm(60)
        return vault.events

    yield open_it
    for vault in opened:
        vault.close()


def search(
    timeline: EventEngine, query: str, mode: SearchMode = SearchMode.KEYWORD, among: Sequence[int] | None = None
) -> TextScores:
    """What a text finds among all events, or among some."""
    vector = EMBEDDER.embed([query])[0]
    asked = timeline.sequences(ALL) if among is None else np.array(among, np.int64)
    return timeline.search_text(query, vector, asked, mode)


def settle(timeline: EventEngine) -> None:
    """Waits until the index has processed everything."""
    wait_until(lambda: timeline.status().text_pending_count == 0)


def found(timeline: EventEngine, query: str, **options: Any) -> list[int]:
    """The sequences that a text finds once nothing is pending."""
    settle(timeline)
    scores = search(timeline, query, **options)
    assert scores.pending == 0
    return [int(sequence) for sequence in scores.sequences]


def append_texts(timeline: EventEngine, texts: Sequence[str], prefix: str = "e") -> None:
    """Appends an event for each text."""
    append(timeline, *(happening(f"{prefix}{i}", content=text) for i, text in enumerate(texts)))


def prune(timeline: EventEngine, *event_ids: str) -> None:
    """Removes events, and waits until they have left every part of the index."""
    timeline.prune(get(timeline, *event_ids), PruneReason.REQUESTED).result()
    wait_until(lambda: timeline.status().removal_pending_count == 0)


def index_bytes(folder: Path) -> bytes:
    """All bytes of the index on disk."""
    return contents_of(folder / "timeline-index")


# Searching


def test_the_context_of_an_event_is_searched_too(open_timeline: OpenTimeline) -> None:
    timeline = open_timeline()
    append(timeline, happening("a", content="a walk", context="in the garden"), happening("b", content="a garden"))
    assert found(timeline, "walks") == [1]
    assert found(timeline, "gardens") == [1, 2]


def test_events_are_found_by_meaning_by_words_and_by_both(open_timeline: OpenTimeline) -> None:
    timeline = open_timeline(embed=EMBEDDER.embed)
    assert timeline.has_embeddings
    texts = ["the blue door", "the red gate", "", "blue doors, all of them blue"]
    append_texts(timeline, texts)
    settle(timeline)
    cosines = np.clip(EMBEDDER.embed(texts) @ EMBEDDER.embed(["the blue door"])[0], 0, 1)

    by_meaning = search(timeline, "the blue door", SearchMode.VECTOR)
    assert by_meaning.sequences.tolist() == [n + 1 for n in range(4) if cosines[n] > 0]
    np.testing.assert_allclose(by_meaning.similarity, cosines[cosines > 0], atol=1e-3)
    assert by_meaning.relevance.tolist() == by_meaning.similarity.tolist()

    by_both = search(timeline, "the blue door", SearchMode.HYBRID)
    assert by_both.mode is SearchMode.HYBRID
    by_word = search(timeline, "the blue door", SearchMode.KEYWORD)
    keyword = dict(zip(by_word.sequences.tolist(), by_word.keyword.tolist(), strict=True))
    for sequence, relevance in zip(by_both.sequences.tolist(), by_both.relevance.tolist(), strict=True):
        assert relevance == pytest.approx((cosines[sequence - 1] + keyword.get(sequence, 0)) / 2, abs=1e-3)
    assert 1 in by_both.sequences
    assert np.isnan(by_word.similarity).all()


def test_among_many_events_the_newest_and_those_with_the_best_words_are_compared(
    open_timeline: OpenTimeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "_COMPARED_MAX", 4)
    monkeypatch.setattr(text, "_WORDED_MAX", 1)
    timeline = open_timeline(embed=EMBEDDER.embed)
    append_texts(
        timeline, ["the blue door", "a door in a long row of doors and gates", *(f"gate {i}" for i in range(8))]
    )
    settle(timeline)
    by_both = search(timeline, "the blue door", SearchMode.HYBRID)
    assert not by_both.exact and by_both.relevance[0] == pytest.approx(1.0, abs=1e-3)
    assert set(by_both.sequences.tolist()) <= {1, 7, 8, 9, 10}
    assert not np.isnan(by_both.similarity).any()
    for mode in (SearchMode.VECTOR, SearchMode.KEYWORD):
        assert search(timeline, "the blue door", mode).exact
        assert 2 in search(timeline, "the blue doors", mode).sequences
    assert search(timeline, "the blue door", SearchMode.HYBRID, among=[1, 2, 3]).exact


def test_without_a_query_vector_only_words_count(open_timeline: OpenTimeline) -> None:
    timeline = open_timeline(embed=EMBEDDER.embed)
    append_texts(timeline, ["the blue door", "a gate"])
    settle(timeline)
    scores = timeline.search_text("doors", None, timeline.sequences(ALL), SearchMode.HYBRID)
    assert (scores.mode, scores.sequences.tolist()) == (SearchMode.KEYWORD, [1])


def test_words_are_found_while_the_model_fails_and_vectors_follow(open_timeline: OpenTimeline) -> None:
    works = threading.Event()

    def embed(texts: Sequence[str]) -> Any:
        if not works.is_set():
            raise EmbeddingError("out of order")
        return EMBEDDER.embed(texts)

    timeline = open_timeline(embed=embed)
    append_texts(timeline, ["the blue door", "a gate"])
    wait_until(lambda: search(timeline, "door").sequences.tolist() == [1])
    by_both = search(timeline, "the blue door", SearchMode.HYBRID)
    assert timeline.status().text_pending_count == by_both.pending == 2
    assert by_both.relevance.tolist() == pytest.approx([1.0])  # not halved, as if its meaning were another one
    works.set()
    settle(timeline)
    assert search(timeline, "the blue door", SearchMode.VECTOR).similarity.max() > 0.99


def test_the_parts_of_the_index_answer_as_one(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    open_timeline()
    timeline = open_timeline("other")
    # As if this many events had been stored and pruned.
    with open_database(tmp_path / "vault" / "records.db") as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('timeline.sequence', ?)", (PART_SEQUENCES - 6,))
    texts = [f"door {'blue ' * (i % 4)}number{i}" for i in range(12)]
    append_texts(timeline, texts)
    expected = (found(timeline, "blue door"), search(timeline, "blue door").relevance)
    timeline = open_timeline()
    append_texts(timeline, texts)
    first = PART_SEQUENCES - 6
    assert found(timeline, "blue door") == [first + sequence for sequence in expected[0]]
    np.testing.assert_allclose(search(timeline, "blue door").relevance, expected[1])
    assert found(timeline, "number7", among=[first + 8]) == [first + 8]
    assert found(timeline, "number7", among=[first + 1, first + 7, first + 9]) == []
    # The whole first part, and some events of the second.
    prune(timeline, *(f"e{i}" for i in range(6)), "e7")
    assert found(timeline, "door") == [first + i + 1 for i in range(6, 12) if i != 7]
    timeline = open_timeline()
    assert found(timeline, "door") == [first + i + 1 for i in range(6, 12) if i != 7]


# What was just stored


@pytest.mark.parametrize("mode", SearchMode)
def test_an_event_is_found_as_soon_as_it_is_stored(open_timeline: OpenTimeline, mode: SearchMode) -> None:
    timeline = open_timeline(embed=EMBEDDER.embed)
    users = [Scope(user=user) for user in ("ada", "bob", "eve")]
    for number in range(200):
        scope = users[number % len(users)]
        append(timeline, happening(f"e{number}", content=f"door number{number}", scope=scope))
        among = timeline.sequences(EventSelection(scope=scope))
        scores = search(timeline, f"door number{number}", mode, among=among.tolist())
        own = scores.relevance[scores.sequences == number + 1]
        assert own.tolist() == [pytest.approx(scores.relevance.max(), abs=1e-3)]


def test_each_writer_finds_its_own_events_beside_others(open_timeline: OpenTimeline) -> None:
    timeline = open_timeline()

    def write(writer: int) -> list[int]:
        missed = []
        for number in range(50):
            append_texts(timeline, [f"door writer{writer} number{number}"], prefix=f"{writer} {number} ")
            scores = search(timeline, f"writer{writer} number{number}")
            best = timeline.read([int(scores.sequences[scores.relevance.argmax()])]) if len(scores.sequences) else []
            if [event.position.event_id for event in best] != [f"{writer} {number} 0"]:
                missed.append(number)
        return missed

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write, range(4))) == [[]] * 4


def test_events_are_found_right_after_the_start(open_timeline: OpenTimeline) -> None:
    append_texts(open_timeline(), [f"door number{i}" for i in range(3_000)])
    # Whether or not the index had all of them when it was closed.
    timeline = open_timeline()
    assert search(timeline, "number2999").sequences.tolist() == [3_000]
    settle(timeline)
    timeline = open_timeline()
    assert search(timeline, "number7").sequences.tolist() == [8]


def test_scores_do_not_depend_on_what_the_index_has(open_timeline: OpenTimeline) -> None:
    may_embed = threading.Event()

    def embed(texts: Sequence[str]) -> Any:
        # The searches' own batch, and no other, until the index may go on.
        if len(texts) != 12:
            may_embed.wait(60)
        return EMBEDDER.embed(texts)

    timeline = open_timeline(embed=embed)
    append_texts(timeline, [f"the {'blue ' * (i % 4)}door number{i}" for i in range(12)])
    before = {mode: search(timeline, "blue doors", mode) for mode in SearchMode}
    may_embed.set()
    settle(timeline)
    for mode, scores in before.items():
        after = search(timeline, "blue doors", mode)
        assert scores.sequences.tolist() == after.sequences.tolist()
        np.testing.assert_allclose(scores.relevance, after.relevance)
        assert (scores.pending, after.pending) == (0, 0)


# What pruned events leave behind


@pytest.mark.parametrize("later", [False, True])
def test_the_index_holds_nothing_of_pruned_events(open_timeline: OpenTimeline, tmp_path: Path, *, later: bool) -> None:
    timeline = open_timeline(embed=EMBEDDER.embed)
    folder = tmp_path / "vault"
    words = [f"secretword{i}x" for i in range(60)]
    append_texts(timeline, words)
    assert found(timeline, "secretword7x") == [8]
    stored = index_bytes(folder)
    vectors = [vector.astype("<f2").tobytes() for vector in EMBEDDER.embed(words)]
    assert all(word.encode() in stored for word in words)
    assert all(vector in stored for vector in vectors)
    if later:
        # As if the server had stopped before the index removed them.
        timeline = open_timeline("other")
        shutil.copytree(folder / "timeline-index", tmp_path / "before")
        timeline = open_timeline(embed=EMBEDDER.embed)
    prune(timeline, *(f"e{i}" for i in range(0, 60, 3)))
    if later:
        open_timeline("other")
        shutil.rmtree(folder / "timeline-index")
        shutil.copytree(tmp_path / "before", folder / "timeline-index")
        timeline = open_timeline(embed=EMBEDDER.embed)
    left = [i for i in range(60) if i % 3]
    wait_until(lambda: [i for i, word in enumerate(words) if word.encode() in index_bytes(folder)] == left)
    kept = {vectors[i] for i in left}
    stored = index_bytes(folder)
    assert not [vector for vector in vectors if vector in stored and vector not in kept]
    assert all(found(timeline, words[i]) == [i + 1] for i in left)
    assert not any(found(timeline, words[i], among=range(1, 61)) for i in range(0, 60, 3))


def test_an_index_that_is_empty_after_pruning_takes_new_events(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    timeline = open_timeline()
    append_texts(timeline, ["secretword", "another"])
    assert found(timeline, "secretword") == [1]
    prune(timeline, "e0", "e1")
    assert b"secretword" not in index_bytes(tmp_path / "vault")
    append_texts(timeline, ["a door"], prefix="n")
    assert found(timeline, "door") == [3]
    assert found(open_timeline(), "door") == [3]


# What happens to the file


def test_the_index_is_there_after_reopening(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    timeline = open_timeline()
    append_texts(timeline, [f"door number{i}" for i in range(23)])
    assert found(timeline, "number7") == [8]
    inode = (tmp_path / "vault" / "timeline-index" / "text.db").stat().st_ino
    timeline = open_timeline()
    assert found(timeline, "number7") == [8]
    append_texts(timeline, ["a window"], prefix="n")
    assert found(timeline, "window") == [24]
    assert (tmp_path / "vault" / "timeline-index" / "text.db").stat().st_ino == inode
    assert not (tmp_path / "vault" / "quarantine").exists()


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "halved", "page short", "no table"])
def test_a_damaged_index_is_rebuilt(open_timeline: OpenTimeline, tmp_path: Path, damage: str) -> None:
    timeline = open_timeline()
    append_texts(timeline, [f"door number{i}" for i in range(500)])
    assert found(timeline, "number77") == [78]
    open_timeline("other")
    path = tmp_path / "vault" / "timeline-index" / "text.db"
    data = path.read_bytes()
    assert len(data) > 5 * 4096
    if damage == "missing":
        shutil.rmtree(path.parent)
    elif damage == "no table":
        with open_database(path) as connection:
            connection.execute("DROP TABLE compound")
    else:
        damaged = {"empty": b"", "garbage": random.Random(3).randbytes(9000), "halved": data[: len(data) // 2]}
        path.write_bytes(damaged.get(damage, data[:-4096]))
    timeline = open_timeline()
    # The damage may be noticed only after some searches, and the index is built again then.
    wait_until(lambda: [int(each) for each in search(timeline, "number77").sequences] == [78])
    wait_until(lambda: len(search(timeline, "door").sequences) == 500)
    # A word cannot be removed from a damaged index.
    assert not (tmp_path / "vault" / "quarantine").exists()


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_no_flipped_byte_causes_an_error_or_a_wrong_event(
    open_timeline: OpenTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(text, "_AWAITED_S", 0.1)  # for the vectors of events that do not exist
    timeline = open_timeline(embed=EMBEDDER.embed)
    append_texts(timeline, [f"door number{i}" for i in range(300)])
    assert len(found(timeline, "door")) == 300
    open_timeline("other")
    path = tmp_path / "vault" / "timeline-index" / "text.db"
    data, rng = path.read_bytes(), random.Random(5)
    for _ in range(rounds):
        flipped = bytearray(data)
        for place in rng.sample(range(len(data)), 30):
            flipped[place] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
        timeline = open_timeline(embed=EMBEDDER.embed)
        for mode in SearchMode:
            scores = search(timeline, "door number7", mode, among=range(100, 320))
            assert set(scores.sequences.tolist()) <= set(range(100, 301))
            assert np.all((scores.relevance >= 0) & (scores.relevance <= 1))
        settle(timeline)
        search(timeline, "door number7", SearchMode.HYBRID)
        open_timeline("other")


def test_an_index_that_breaks_while_open_is_rebuilt(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    timeline = open_timeline()
    append_texts(timeline, [f"door number{i}" for i in range(500)])
    assert len(found(timeline, "door")) == 500
    with open_database(tmp_path / "vault" / "timeline-index" / "text.db") as connection:
        connection.execute("DROP TABLE compound_0_fts_data")
        connection.execute("DELETE FROM meta WHERE key = 'compound'")
    search(timeline, "door")
    wait_until(lambda: len(search(timeline, "door").sequences) == 500)
    append_texts(timeline, ["a window"], prefix="n")
    assert found(timeline, "window") == [501]


def test_an_index_of_another_vault_is_discarded(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    append_texts(timeline := open_timeline("other"), ["a window", "the window", "windows"])
    assert found(timeline, "window") == [1, 2, 3]
    append_texts(timeline := open_timeline(), ["a door", "a gate"])
    assert found(timeline, "door") == [1]
    open_timeline("third")
    shutil.rmtree(tmp_path / "vault" / "timeline-index")
    shutil.copytree(tmp_path / "other" / "timeline-index", tmp_path / "vault" / "timeline-index")
    timeline = open_timeline()
    wait_until(lambda: search(timeline, "door").sequences.tolist() == [1])
    assert found(timeline, "window") == []
    assert b"window" not in index_bytes(tmp_path / "vault")


def test_an_index_that_is_ahead_of_the_records_is_discarded(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    append_texts(timeline := open_timeline(), ["a door"])
    assert found(timeline, "door") == [1]
    open_timeline("other")
    shutil.copytree(tmp_path / "vault", tmp_path / "backup")
    append_texts(timeline := open_timeline(), ["a gate", "a window"], prefix="n")
    assert found(timeline, "window") == [3]
    open_timeline("other")
    shutil.copytree(tmp_path / "vault" / "timeline-index", tmp_path / "backup" / "timeline-index", dirs_exist_ok=True)
    timeline = open_timeline("backup")
    append_texts(timeline, ["a cellar"], prefix="m")
    wait_until(lambda: search(timeline, "cellar").sequences.tolist() == [2])
    assert found(timeline, "gate") == []


def test_vectors_come_and_go_with_the_setting(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    append_texts(timeline := open_timeline(), ["the blue door", "a gate"])
    assert not timeline.has_embeddings
    assert found(timeline, "door", mode=SearchMode.HYBRID) == [1]
    file = tmp_path / "vault" / "timeline-index" / "text.db"
    before = file.stat().st_ino
    timeline = open_timeline(embed=EMBEDDER.embed)
    assert search(timeline, "door").sequences.tolist() == [1]
    assert file.stat().st_ino == before, "the words were added again"
    wait_until(lambda: search(timeline, "the blue door", SearchMode.VECTOR).relevance.max(initial=0) > 0.99)
    assert found(timeline, "door", mode=SearchMode.KEYWORD) == [1]
    timeline = open_timeline()
    wait_until(lambda: search(timeline, "door", SearchMode.HYBRID).sequences.tolist() == [1])
    assert search(timeline, "door", SearchMode.VECTOR).mode is SearchMode.KEYWORD


class GrowingSource(StoredTexts):
    """A source that has another event each time some were read."""

    def __init__(self) -> None:
        self._last = 1

    def last_sequence(self) -> int:
        return self._last

    def alive(self, first: int, last: int) -> Sequences:
        return np.arange(first, min(last, self._last) + 1)

    def alive_among(self, sequences: Sequences) -> Sequences:
        return sequences[sequences <= self._last]

    def count_behind(self, sequence: int) -> int:
        return self._last - sequence

    def texts(self, sequences: Sequence[int], length_max: int) -> dict[int, str]:
        self._last += 1
        return {sequence: f"door {sequence}" for sequence in sequences}


def test_events_get_vectors_even_while_newer_ones_keep_coming(tmp_path: Path) -> None:
    embedded = threading.Event()

    def embed(texts: Sequence[str]) -> Any:
        embedded.set()
        return EMBEDDER.embed(texts)

    work = TextWork(VaultKeyFile(tmp_path), GrowingSource(), identity="i", embed=embed)
    thread = TextThread(work, lambda seconds: True)
    thread.start()
    try:
        assert embedded.wait(60), "no event got a vector while others were coming"
    finally:
        thread.close()


_CHILD = """
import sys
from pathlib import Path
from mnemon_server.engines.sqlite_vault import SQLiteVault
from tests.contract.timeline_suite import append, happening
timeline = SQLiteVault(Path(sys.argv[1]), model_identity="hashing/1", dimension=16).events
timeline.wait_until_warm(60)
start = timeline.status().event_count
for number in range(start, 10**6, 50):
    append(timeline, *(happening(f"e{i}", content=f"door number{i}") for i in range(number, number + 50)))
    print(number + 50, flush=True)
"""


def test_an_index_whose_server_was_killed_continues(open_timeline: OpenTimeline, tmp_path: Path) -> None:
    rng = random.Random(7)
    for _ in range(4):
        with python(_CHILD, tmp_path / "vault") as (_, printed):
            stored = [int(printed.readline()) for _ in range(rng.randint(5, 30))]
        timeline = open_timeline()
        count = timeline.status().event_count
        assert count >= stored[-1]
        assert found(timeline, "door") == list(range(1, count + 1))
        assert found(timeline, f"number{count - 1}") == [count]
        open_timeline("other")
    assert not (tmp_path / "vault" / "quarantine").exists()
