"""What the metadata of a record adds to its text for searches."""

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
        # Nothing is said twice.
        ({"speaker": "Ann", "author": "Ann"}, "I swam.", "Ann: "),
        ({"speaker": "Ann", "date": "2023-05-08"}, "ANN (8 May 2023): I swam.", ""),
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
