"""Words of neighbouring passages: which passages they lift, by how much, and when they are ignored."""

from collections.abc import Iterator
from dataclasses import replace

import apsw
import numpy as np
import pytest
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.ranking.analysis import STEMMED_WORDS
from mnemon_server.ranking.keyword_context import Matches, SummedGains

from tests.support.keywords import search

TABLES = fts.KeywordTables("note")
FILLER = ["weather", "sunny", "morning", "walk", "coffee", "bread", "letter", "window", "garden", "music"]
TALK_EVERY = 30
QUERY = "which violin does anna play"


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    opened = apsw.Connection(":memory:")
    for statement in fts.create_statements(TABLES):
        opened.execute(statement)
    yield opened
    opened.close()


def conversation() -> list[str]:
    """Small talk that always names anna, and sometimes three turns about a violin. Only the last says which violin."""
    texts = [f"anna {FILLER[i % 10]} {FILLER[i * 7 % 9]} thing{i}" for i in range(300)]
    for start in range(10, 300, TALK_EVERY):
        texts[start] = f"anna shall we speak of your violin, play{start}"
        texts[start + 1] = f"anna the old violin from the attic {start}"
    texts[10] = "ben asks which violin it is that she will play"
    texts[11] = "anna a stradivari, borrowed of course"
    texts[12] = "ben a violin to play then, how fine"
    return texts


def fill(connection: apsw.Connection, texts: list[str]) -> None:
    with connection:
        for passage_id, text in enumerate(texts, start=1):
            fts.insert(connection, TABLES, {passage_id: text})


def found(
    connection: apsw.Connection, query: str, among: list[int] | None = None, weight: float = 0.75
) -> dict[int, float]:
    wanted = None if among is None else np.array(among, np.int64)
    scored = search(connection, TABLES, query, wanted, context_weight=weight)
    return dict(zip(scored.passage_ids.tolist(), scored.scores.tolist(), strict=True))


def test_an_answer_is_lifted_by_the_question_before_it(connection: apsw.Connection) -> None:
    fill(connection, conversation())
    alone, lifted = found(connection, QUERY, weight=0.0), found(connection, QUERY)
    answer, small_talk = 12, 200
    assert lifted[answer] > 2 * alone[answer]
    assert lifted[answer] > 2 * lifted[small_talk]
    assert lifted[small_talk] == pytest.approx(alone[small_talk])


def test_neighbours_lift_long_passages_less_than_short_ones(connection: apsw.Connection) -> None:
    short = conversation()
    fill(
        connection,
        [*short, *(f"{text} {' '.join(f'more{i}x{n}' for n in range(250))}" for i, text in enumerate(short))],
    )
    lifted = found(connection, QUERY, list(range(1, 301)))
    long_lifted = found(connection, QUERY, list(range(301, 601)))
    answer = 12
    assert long_lifted[answer + 300] < 0.4 * lifted[answer]


@pytest.mark.parametrize(("query", "terms"), [("who sang?", 1.0), ("谁唱了国歌", 4.0), ("ใครร้องเพลง", 6.0), ("", 1.0)])
def test_passages_are_long_by_words_in_every_script(query: str, terms: float) -> None:
    assert STEMMED_WORDS.query(query).terms_per_word == pytest.approx(terms)


def test_a_neighbour_lifts_less_with_distance(connection: apsw.Connection) -> None:
    texts = conversation()
    texts[100:104] = ["anna thing1", "anna thing2", "anna thing3", "anna thing4"]
    texts[99] = "ben violin to play"
    texts[104:108] = ["ben small talk", "ben small talk", "ben small talk", "ben small talk"]
    fill(connection, texts)
    scores = found(connection, QUERY)
    first, second, third, fourth = (scores[passage_id] for passage_id in (101, 102, 103, 104))
    assert first > second > third > fourth
    assert fourth == pytest.approx(found(connection, QUERY, weight=0.0)[104])


def test_a_neighbour_lifts_the_passages_before_and_after_it_equally(connection: apsw.Connection) -> None:
    texts = conversation()
    texts[98:103] = ["ben small talk", "anna thing1", "ben violin to play", "anna thing2", "ben small talk"]
    fill(connection, texts)
    scores, alone = found(connection, QUERY), found(connection, QUERY, weight=0.0)
    assert scores[100] == pytest.approx(scores[102])
    assert scores[100] > 2 * alone[100]


def test_no_score_falls_and_none_exceeds_1(connection: apsw.Connection) -> None:
    fill(connection, conversation())
    alone, lifted = found(connection, QUERY, weight=0.0), found(connection, QUERY, weight=1.0)
    assert lifted.keys() == alone.keys()
    assert all(alone[passage_id] <= score + 1e-12 and score <= 1 for passage_id, score in lifted.items())


def test_the_querys_own_text_scores_1_among_its_neighbours(connection: apsw.Connection) -> None:
    texts = conversation()
    texts[150] = QUERY
    fill(connection, texts)
    scores = found(connection, QUERY)
    assert scores[151] == pytest.approx(1.0, abs=0.03)
    assert max(scores, key=scores.__getitem__) == 151


def test_unrelated_neighbours_change_nothing(connection: apsw.Connection) -> None:
    texts = conversation()
    order = np.random.default_rng(3).permutation(len(texts))
    fill(connection, [texts[i] for i in order])
    assert found(connection, QUERY) == pytest.approx(found(connection, QUERY, weight=0.0))


def test_one_pair_of_neighbours_is_not_evidence(connection: apsw.Connection) -> None:
    fill(connection, ["a violin", "a violin and a bow", *(f"something else {i}" for i in range(100)), "a bow"])
    assert found(connection, "violin bow") == pytest.approx(found(connection, "violin bow", weight=0.0))


def test_a_filter_determines_the_neighbours(connection: apsw.Connection) -> None:
    mine, others = conversation(), [f"violin play {i}" for i in range(300)]
    fill(connection, [text for pair in zip(mine, others, strict=True) for text in pair])
    apart = found(connection, QUERY, list(range(1, 601, 2)))
    beside = apsw.Connection(":memory:")
    for statement in fts.create_statements(TABLES):
        beside.execute(statement)
    fill(beside, mine)
    together = found(beside, QUERY)
    beside.close()
    assert [passage_id // 2 + 1 for passage_id in apart] == list(together)
    # Only the mean passage length differs, because it covers all stored passages.
    assert list(apart.values()) == pytest.approx(list(together.values()), rel=0.1)


def test_a_passage_without_a_word_of_the_query_is_not_found_through_its_neighbours(connection: apsw.Connection) -> None:
    texts = conversation()
    texts[11] = "borrowed stradivari"
    fill(connection, texts)
    assert 12 not in found(connection, QUERY)


def in_words(matches: Matches, weight: float) -> dict[int, float]:
    """The rule as the module describes it, passage by passage."""
    importance = np.square(matches.weights)
    given = zip(matches.positions, matches.gains, strict=True)
    sets = [dict(zip(positions.tolist(), gains.tolist(), strict=True)) for positions, gains in given]
    pairs = [sum(position + distance in gains for position in gains for distance in (1, 2, 3)) for gains in sets]
    seen = sum(w * count for w, count in zip(importance, pairs, strict=True))
    total = matches.passage_count
    chance = sum(w * len(gains) ** 2 for w, gains in zip(importance, sets, strict=True)) * (3 * total - 6) / total**2
    evidence = min(max((1 - (importance.max() + chance) / seen) / 0.25, 0.0), 1.0) if seen else 0.0

    def gain(gains: dict[int, float], position: int) -> float:
        shares = ((d, weight * evidence * (4 - abs(d)) / 3) for d in (-3, -2, -1, 1, 2, 3))
        return max(gains.get(position, 0.0), *(share * gains.get(position + d, 0.0) for d, share in shares))

    return {position: sum(gain(gains, position) for gains in sets) for position in set().union(*sets)}


@pytest.mark.parametrize("spread", [1, 2, 500, 10**12])
@pytest.mark.parametrize("weight", [0.0, 0.75])
def test_scores_are_what_the_rule_says(spread: int, weight: float) -> None:
    """Also where the positions fill several ranges, and where there is a wide gap among them."""
    rng = np.random.default_rng(spread)
    stored = 8_000
    positions = [np.flatnonzero(rng.random(stored) < share) for share in (0.3, 0.1, 0.05, 0.001, 0.0)]
    apart = [np.concatenate((low[low < stored // 2], low[low >= stored // 2] + spread)) for low in positions]
    matches = Matches(
        # Words in runs of neighbours, so that there is evidence.
        positions=[np.unique(np.concatenate((each, each[::3] + 1, each[::5] + 3))) for each in apart],
        gains=[],
        weights=rng.random(5) + 0.1,
        passage_count=stored + spread,
    )
    matches = replace(matches, gains=[rng.random(len(each)) + 0.01 for each in matches.positions])
    given = SummedGains(matches, weight)
    found, sums = given.all()
    expected = in_words(matches, weight)
    assert found.tolist() == sorted(expected)
    assert sums.tolist() == pytest.approx([expected[position] for position in found.tolist()], rel=1e-12)
    some = np.sort(rng.choice(np.union1d(found, found + 1), 30, replace=False))
    found_some, of_some = given.of(some)
    assert found_some.tolist() == [position for position in some.tolist() if position in expected]
    assert of_some.tolist() == sums[np.isin(found, found_some)].tolist()


@pytest.mark.parametrize("spread", [2, 10**12])
@pytest.mark.parametrize("related", [0.0, 0.0005, 0.01, 1.0])
def test_the_best_are_the_best_of_all(spread: int, related: float) -> None:
    """Whatever the evidence is, also if nearly everything must be computed."""
    rng = np.random.default_rng(1)
    stored = 30_000
    lists = [np.flatnonzero(rng.random(stored) < share) for share in (0.2, 0.1, 0.02)]
    lists = [np.unique(np.concatenate((each, each[: int(related * len(each))] + 1))) for each in lists]
    matches = Matches(
        positions=[np.concatenate((each[each < 20_000], each[each >= 20_000] + spread)) for each in lists],
        # Few different gains, so that many sums are equal.
        gains=[weight * rng.choice((0.5, 0.75, 1.0), len(each)) for weight, each in zip((1, 2, 4), lists, strict=True)],
        weights=np.array([1.0, 2.0, 4.0]),
        passage_count=stored,
    )
    given = SummedGains(matches, 0.75)
    positions, sums = given.all()
    for count in (1, 10, 300, 5_000, 10**6):
        for sufficient in (1.5, 5.0, 100.0):
            found, of_found = given.best(count, sufficient)
            capped = np.minimum(sums, sufficient)
            bound = np.sort(capped)[-min(count, len(sums))]
            assert np.isin(positions[capped >= bound], found).all()
            assert of_found.tolist() == sums[np.isin(positions, found)].tolist()
            for least in (bound, float(np.median(capped)), float(capped.max())):
                found, of_found = given.best(count, sufficient, least)
                assert np.isin(positions[capped >= max(bound, least)], found).all()
                assert of_found.tolist() == sums[np.isin(positions, found)].tolist()
            assert not len(given.best(count, sufficient, 100.0)[0])
