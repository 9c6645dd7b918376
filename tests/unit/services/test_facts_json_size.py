"""The size of a JSON value is determined without reading all of it."""

from typing import Any

import pytest
from mnemon_server.services.facts.putting import holds_many


@pytest.mark.parametrize(
    ("value", "is_many"),
    [
        ({}, False),
        ({"a": [1, 2, {"b": [3]}]}, False),
        ({"a": [1, 2, {"b": [3, 4]}]}, True),
        ({str(number): number for number in range(7)}, True),
        ({"a": "a text of many letters"}, False),
    ],
)
def test_values_are_counted_however_they_are_nested(value: dict[str, Any], *, is_many: bool) -> None:
    assert holds_many(value, most=6) is is_many
