"""Keyword search: which words of a text count, what they find, with what score, and what a deletion leaves behind."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.keywords.scoring import ID_SHIFT
from mnemon_server.ranking.analysis import QUERY_TERMS_MAX, STEMMED_WORDS, STOP_WORDS, analyze, query_terms

from tests.support.keywords import search

TABLES = fts.KeywordTables("note")
WORDS = ["ada", "boat", "cedar", "drum", "ember", "fern", "glade", "harbor", "iris", "jade"]


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    opened = apsw.Connection(":memory:")
    yield create(opened)
    opened.close()


def create(connection: apsw.Connection) -> apsw.Connection:
    for statement in fts.create_statements(TABLES):
        connection.execute(statement)
    return connection


def fill(connection: apsw.Connection, *texts: str) -> None:
    for passage_id, text in enumerate(texts, start=1):
        fts.insert(connection, TABLES, {passage_id: text})


def found(connection: apsw.Connection, query: str, among: list[int] | None = None) -> dict[int, float]:
    wanted = None if among is None else np.array(among, np.int64)
    scored = search(connection, TABLES, query, wanted)
    return dict(zip(scored.passage_ids.tolist(), scored.scores.tolist(), strict=True))


def expected_bm25(texts: list[str], query: str) -> dict[int, float]:
    """BM25 over white space, with k1 = 0.9, b = 0.4, an idf that is never negative, and the mean length of documents
    that contain each word.
    """
    documents = [Counter(text.split()) for text in texts]
    lengths = [document.total() for document in documents for word in set(query.split()) if word in document]
    mean = sum(lengths) / len(lengths)

    def score(document: Counter[str], word: str) -> float:
        holding = sum(word in other for other in documents)
        idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        norm = 0.9 * (1 - 0.4 + 0.4 * document.total() / mean)
        return idf * document[word] * 1.9 / (document[word] + norm)

    wanted = dict.fromkeys(query.split())
    own = sum(score(Counter(query.split()), word) for word in wanted)
    sums = (sum(score(document, word) for word in wanted) for document in documents)
    return {i: min(1.0, total / own) for i, total in enumerate(sums, start=1) if total > 0}


def test_ascii_text_is_left_alone() -> None:
    assert analyze("It's 5 o'clock, FTS5!") == "It's 5 o'clock, FTS5!"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("東京都に行く", ["東京", "京都", "都に", "に行", "行く"]),
        ("猫", ["猫"]),
        ("한국어 배우기", ["한국", "국어", "배우", "우기"]),
        ("Python言語を", ["Python", "言語", "語を"]),
        ("𠮷野家", ["𠮷野", "野家"]),
    ],
)
def test_runs_of_cjk_characters_become_overlapping_pairs(text: str, words: list[str]) -> None:
    assert analyze(text).split() == words


@pytest.mark.parametrize(("one", "other"), [("ＡＢＣ１２", "ABC12"), ("ｶﾞﾗｽ", "ガラス"), ("cafe\u0301", "caf\u00e9")])
def test_two_encodings_of_a_text_are_the_same_text(one: str, other: str) -> None:
    assert analyze(one) == analyze(other)


def test_stop_words_are_left_out_of_a_query() -> None:
    assert query_terms("What did the Doctor say about the rain?") == ["doctor", "say", "rain"]


def test_a_query_of_only_stop_words_keeps_them() -> None:
    assert query_terms("To be or not to be") == ["to", "be", "or", "not"]


def test_the_stop_words_are_lower_case_words() -> None:
    assert len(STOP_WORDS) > 100
    assert all(query_terms(word) == [word] for word in STOP_WORDS)


def test_a_query_has_a_bounded_number_of_words() -> None:
    assert query_terms(" ".join(f"w{i}" for i in range(10_000))) == [f"w{i}" for i in range(QUERY_TERMS_MAX)]


@pytest.mark.parametrize("query", ["", " \n", "?!"])
def test_a_query_without_words_finds_nothing(connection: apsw.Connection, query: str) -> None:
    fill(connection, "a party?!")
    assert query_terms(query) == []
    assert found(connection, query) == {}


def test_words_match_by_stem_without_case_and_accents(connection: apsw.Connection) -> None:
    fill(connection, "She was running to the Café", "nothing of the kind")
    assert found(connection, "RUN").keys() == {1}
    assert found(connection, "cafes").keys() == {1}


def test_an_empty_index_finds_nothing(connection: apsw.Connection) -> None:
    assert found(connection, "ada boat") == {}
    assert found(connection, "ada boat", among=[1, 2]) == {}


def test_cjk_text_is_found_by_a_part_of_it(connection: apsw.Connection) -> None:
    fill(connection, "我喜欢北京烤鸭", "昨日は東京都庁に行きました", "서울특별시에 살아요")
    assert found(connection, "北京").keys() == {1}
    assert found(connection, "東京都庁").keys() == {2}
    assert found(connection, "특별시").keys() == {3}


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "rain*",
        "rain AND",
        "(rain",
        "NEAR(rain, 2)",
        "text:rain",
        "-rain",
        "rain^2",
        "{rain}",
        "'; DROP--rain",
        "rain\0",
    ],
)
def test_no_character_of_a_query_has_a_special_meaning(connection: apsw.Connection, query: str) -> None:
    fill(connection, "rain again", "sun", "near the text and drop")
    assert (1 in found(connection, query)) == ("rain" in query)


@given(st.text(max_size=200))
def test_any_text_is_a_query_and_scores_1_against_itself(text: str) -> None:
    connection = create(apsw.Connection(":memory:"))
    fill(connection, "rain again", "the sun", text.replace("\0", " "))
    scores = found(connection, text.replace("\0", " "))
    assert all(0 < score <= 1 for score in scores.values())
    if 3 in scores:
        assert scores[3] == pytest.approx(1)
    connection.close()


def test_scores_are_bm25_relative_to_the_query(connection: apsw.Connection) -> None:
    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, 60))) for _ in range(80)]
    fill(connection, *texts)
    for query in ("ada boat", "cedar drum ember cedar", "jade", "iris unheard"):
        expected = expected_bm25(texts, query)
        scores = found(connection, query)
        assert scores.keys() == expected.keys()
        # Lengths are stored to within 2.2 %.
        assert [scores[i] for i in expected] == pytest.approx(list(expected.values()), rel=0.02)


def test_an_unknown_word_lowers_the_score_of_a_match(connection: apsw.Connection) -> None:
    fill(connection, "ada boat", "cedar", "drum")
    assert found(connection, "ada boat")[1] == pytest.approx(1)
    assert found(connection, "ada boat zeppelin")[1] < 0.8


def test_a_single_passage_is_found_by_word(connection: apsw.Connection) -> None:
    fill(connection, "the ferry leaves at noon")
    assert found(connection, "when does the ferry leave")[1] > 0.5


def test_only_the_requested_passages_are_found(connection: apsw.Connection) -> None:
    fill(connection, "ada boat", "ada", "boat", "ada cedar")
    assert found(connection, "ada boat", among=[2, 3, 77]).keys() == {2, 3}
    assert found(connection, "ada boat", among=[]) == {}


def test_passages_that_are_not_searched_change_no_score(connection: apsw.Connection) -> None:
    fill(connection, "ada boat here", "ada drum here", "cedar fern here")
    before = found(connection, "ada boat", among=[1, 2, 3])
    for passage_id in range(10, 60):
        fts.insert(connection, TABLES, {passage_id: "boat " * passage_id})
    assert found(connection, "ada boat", among=[1, 2, 3]) == pytest.approx(before)


def test_a_deleted_passage_is_not_found(connection: apsw.Connection) -> None:
    fill(connection, "ada boat", "ada drum")
    before = found(connection, "ada")[2]
    fts.insert(connection, TABLES, {3: "ada ada fern"})
    fts.delete(connection, TABLES, 1, "ada boat")
    fts.delete(connection, TABLES, 3, "ada ada fern")
    assert found(connection, "ada boat fern").keys() == {2}
    fts.insert(connection, TABLES, {4: "ada boat"})
    assert found(connection, "ada")[2] == pytest.approx(before)


def test_deleted_words_leave_the_files(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("secure_delete", True)
    create(connection)
    # The index stores a word without the prefix that it shares with its neighbour. Digests share hardly any.
    secrets = {i: hashlib.sha256(str(i).encode()).hexdigest()[:20] for i in range(1, 1501)}
    for start in range(1, 1501, 50):
        with connection:
            for passage_id in range(start, start + 50):
                fts.insert(connection, TABLES, {passage_id: f"common words {secrets[passage_id]}"})
    with connection:
        for passage_id in range(1, 1501, 2):
            fts.delete(connection, TABLES, passage_id, f"common words {secrets[passage_id]}")
    connection.pragma("wal_checkpoint(TRUNCATE)")
    connection.execute("INSERT INTO note_fts(note_fts) VALUES('integrity-check')")
    connection.close()
    stored = path.read_bytes()
    assert [i for i, secret in secrets.items() if i % 2 and secret[5:].encode() in stored] == []


def test_totals_of_many_passages_are_read_correctly(connection: apsw.Connection) -> None:
    with connection:
        for passage_id in range(1, 301):
            fts.insert(connection, TABLES, {passage_id: "one two three four" if passage_id % 2 else "one two"})
    averages = connection.execute("SELECT block FROM note_fts_data WHERE id = 1").get
    assert fts.passage_count(averages) == 300


@given(st.lists(st.lists(st.sampled_from([*WORDS, "Boats", "日本語", "l'été"]), max_size=300), max_size=12), st.data())
def test_the_texts_of_some_passages_say_the_same_as_the_index(texts: list[list[str]], data: st.DataObject) -> None:
    tables = fts.KeywordTables("part")
    with closing(apsw.Connection(":memory:")) as connection:
        for statement in fts.create_with_texts(tables):
            connection.execute(statement)
        fts.insert(connection, tables, {3 * i: " ".join(words) for i, words in enumerate(texts)})
        some = data.draw(st.sets(st.sampled_from(range(3 * len(texts) + 3))))
        among = np.array(sorted(some), np.int64)
        terms = STEMMED_WORDS.query("boat cedar 本語 été nothing").terms

        few, whole = fts.read_few(connection, tables, terms, among), fts.read(connection, tables, terms)

    assert few.passage_count == whole.passage_count
    expected = [rows[np.isin(rows >> ID_SHIFT, among)].tolist() for rows in whole.occurrences]
    assert [rows.tolist() for rows in few.occurrences] == expected


@pytest.mark.parametrize("count", [1, 2, 40])
def test_the_file_holds_no_word_of_passages_that_were_removed_from_many(tmp_path: Path, count: int) -> None:
    tables, file = fts.KeywordTables("part"), tmp_path / "words.db"
    with closing(apsw.Connection(str(file))) as connection:
        connection.pragma("secure_delete", True)
        for statement in fts.create_with_texts(tables):
            connection.execute(statement)
        rare = [f"{hashlib.sha256(bytes([number])).hexdigest()[:11]}0" for number in range(count)]
        texts = {number: f"{WORDS[number % 10]} boat" for number in range(2_000)}
        for first in range(0, 2_000, 500):
            fts.insert(connection, tables, {number: texts[number] for number in range(first, first + 500)})
        fts.insert(connection, tables, {3_000 + number: f"cedar {word}" for number, word in enumerate(rare)})
        assert all(word.encode() in file.read_bytes() for word in rare)

        fts.remove_many(connection, tables, np.arange(3_000, 3_000 + count))

        assert not any(word.encode()[2:] in file.read_bytes() for word in rare)
        assert fts.read(connection, tables, ["cedar", *rare]).passage_count == 2_000
        assert [len(rows) for rows in fts.read(connection, tables, ["cedar", *rare]).occurrences] == [200, *[0] * count]
