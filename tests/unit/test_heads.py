"""The head that the metadata of a record gives its text."""

from datetime import UTC, datetime
from typing import Any

import pytest
from mnemon_server.ranking.heads import Heads

KEYS = ("title", "speaker", "author", "from", "role", "date", "time")


@pytest.mark.parametrize(
    ("metadata", "content", "head"),
    [
        ({}, "I swam.", ""),
        ({"speaker": "Ann", "date": "8 May 2023", "topic": "lake"}, "I swam.", "Ann (8 May 2023): "),
        ({"title": "Trip to Rome", "author": ("Ann", "Bo")}, "We left.", "Trip to Rome. Ann, Bo: "),
        ({"date": datetime(2024, 2, 3, 9, tzinfo=UTC)}, "We left.", "(3 February 2024): "),
        ({"date": "2024-02-03T09:00:00Z", "from": "bo@example.org"}, "Hi", "bo@example.org (3 February 2024): "),
        ({"time": "2:05 pm on 8 May, 2023"}, "I swam.", "(8 May, 2023): "),
        ({"time": "14:05"}, "I swam.", "(14:05): "),
        ({"date": "2024-02-33"}, "Hi", "(2024-02-33): "),
        ({"author": " ", "speaker": 5, "title": True}, "Hi", ""),
        # The keys are compared without case.
        ({"Title": "Trip to Rome", "AUTHOR": "Ann"}, "We left.", "Trip to Rome. Ann: "),
        ({"Speaker": "Bo", "speaker": "Ann"}, "We left.", "Bo, Ann: "),
        ({"Time": "2:05 pm on 8 May, 2023"}, "I swam.", "(8 May, 2023): "),
        # A date is asked for in both forms, a time of day in none.
        ({"date": "2026-03-14"}, "I swam.", "(14 March 2026, 2026-03-14): "),
        ({"date": datetime(2026, 3, 14, tzinfo=UTC)}, "I swam.", "(14 March 2026, 2026-03-14): "),
        # The day is the author's own where it is known.
        ({"date": "2026-06-24T00:30:00+03:00"}, "I swam.", "(24 June 2026): "),
        ({"date": "2026-03-14", "time": datetime(2026, 3, 15, 7, tzinfo=UTC)}, "Hi", "(14 March 2026, 2026-03-14): "),
        ({"date": "2026-02-33", "time": datetime(2026, 3, 15, 7, tzinfo=UTC)}, "Hi", "(2026-02-33, 15 March 2026): "),
        ({"date": datetime(2026, 3, 15, 7, tzinfo=UTC), "time": "23:30"}, "Hi", "(15 March 2026, 23:30): "),
        # Nothing is said twice.
        ({"speaker": "Ann", "author": "Ann"}, "I swam.", "Ann: "),
        ({"speaker": "Ann", "time": "2023-05-08T20:00Z"}, "ANN (8 May 2023): I swam.", ""),
        ({"date": "2023-05-08"}, "Ann (8 May 2023): I swam.", "(2023-05-08): "),
        ({"date": "2023-05-08"}, "2023-05-08 8 May 2023", ""),
        ({"speaker": "Ann", "time": "1:56 pm on 8 May, 2023"}, "Ann (8 May, 2023): I swam.", ""),
        ({"title": "Trip to Rome"}, "# Trip to Rome\n\nWe left.", ""),
        ({"title": "Rome", "author": "Ann"}, f"{'We left. ' * 50}\nRome", "Ann: "),
        ({"author": "Ann"}, "Annual report", "Ann: "),
    ],
)
def test_a_head_names_author_day_and_title_unless_the_text_does(
    metadata: dict[str, Any], content: str, head: str
) -> None:
    assert Heads(KEYS).of(metadata, content) == head
    assert Heads().of(metadata, content) == ""


def test_metadata_in_another_order_or_of_other_keys_makes_the_same_head() -> None:
    heads, both = Heads(("Author",)), {"author": "Ann", "Author": "Bo"}
    assert heads.of(both, "Hi") == heads.of(dict(reversed(both.items())), "Hi") == "Bo, Ann: "
    assert heads.are_equal(both, {**both, "topic": "tea"})
    assert not heads.are_equal(both, {**both, "AUTHOR": "Cy"})
