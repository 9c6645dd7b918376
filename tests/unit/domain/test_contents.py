"""Content texts are checked quickly, whatever they are written in."""

import pytest
from mnemon_server.domain.documents import CONTENT_BYTES_MAX
from mnemon_server.domain.validation import content_violations

from tests.support.python_calls import python_calls


def problems(content: str) -> list[str]:
    return [violation.description for violation in content_violations(content, "content")]


@pytest.mark.parametrize("letter", ["a", "é", "🙂"])
def test_a_large_text_is_checked_as_a_whole(letter: str) -> None:
    content = letter * (CONTENT_BYTES_MAX // len(letter.encode()))
    assert not problems(content)
    assert python_calls(lambda: problems(content)) < 20


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (" \n\u2003", "must not be blank"),
        ("a\0", "must be valid Unicode without U+0000"),
        ("é\ud800", "must be valid Unicode without U+0000"),
        (" " * (CONTENT_BYTES_MAX + 1), "must be at most 1,048,576 bytes of UTF-8; split it into documents"),
        ("é" * (CONTENT_BYTES_MAX // 2 + 1), "must be at most 1,048,576 bytes of UTF-8; split it into documents"),
    ],
)
def test_what_is_wrong_with_a_text_is_said(content: str, problem: str) -> None:
    assert problems(content) == [problem]
