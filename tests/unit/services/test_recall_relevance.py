"""When a recall says that nothing relevant was found."""

from mnemon_server.ranking.fusion import Fusion, FusionMethod
from mnemon_server.services.recall.relevance import judged

QUESTION = "Does Anna smoke?"


def is_relevant(
    best: float, cosines: list[float], fusion: Fusion | None = None, text: str = QUESTION, searched: int = 200
) -> bool:
    return not judged(fusion or Fusion(), text, best, cosines, searched).is_low


def test_what_is_near_to_every_question_is_no_evidence() -> None:
    distinct, alike = [0.4, *[0.05] * 199], [0.45, *[0.4] * 199]

    assert is_relevant(0.35, distinct)
    assert not is_relevant(0.35, alike) and is_relevant(0.45, alike)


def test_that_half_of_the_records_name_whom_the_question_names_makes_nothing_relevant() -> None:
    with_name, without = [0.42, *[0.38] * 13], [0.02] * 14

    assert not is_relevant(0.28, [*without, *with_name]) and is_relevant(0.8, [*without, *with_name])


def test_a_weak_match_among_few_records_is_relevant_and_among_many_it_is_not() -> None:
    assert is_relevant(0.14, [0.28, *[0.03] * 6])
    assert not is_relevant(0.14, [0.28, *[0.03] * 199])


def test_the_fewer_of_the_records_are_searched_the_less_makes_one_relevant() -> None:
    cosines = [*[0.4] * 3, *[0.1] * 197]

    assert is_relevant(0.2, cosines, searched=4) and not is_relevant(0.2, cosines, searched=200)
    assert not is_relevant(0.06, cosines, searched=4)


def test_one_record_is_relevant_only_if_it_has_something_in_common_with_the_question() -> None:
    assert is_relevant(0.2, [0.4]) and not is_relevant(0.02, [0.04])
    assert not is_relevant(0.0, [])


def test_without_a_text_the_cosine_decides_and_relative_scores_decide_nothing() -> None:
    assert is_relevant(0.5, [0.5], text="") and not is_relevant(0.3, [0.3], text=" ")
    relative = judged(Fusion(FusionMethod.RRF), QUESTION, 0.01, [0.1])
    assert (relative.floor, relative.is_low) == (None, False)
