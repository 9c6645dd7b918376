"""The chats of people with an assistant are whole, and each question names messages of its chat."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT

FILES = sorted((ROOT / "tests" / "data" / "assistant").glob("*.jsonl"))
CHATS = [path for path in FILES if not path.name.endswith(".questions.jsonl")]
KINDS = {
    "extraction", "sessions", "order", "update", "contradiction", "preference", "instruction", "time", "summary",
    "abstention",
}  # fmt: skip


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("chat", CHATS, ids=lambda path: path.stem)
def test_a_chat_is_in_order_and_its_questions_name_its_messages(chat: Path) -> None:
    messages, questions = _rows(chat), _rows(chat.with_suffix(".questions.jsonl"))

    assert [each["id"] for each in messages] == [str(number) for number in range(1, len(messages) + 1)]
    assert all(before["time"] <= after["time"] for before, after in pairwise(messages))
    assert {each["role"] for each in messages} == {"user", "assistant"}
    assert len(messages) >= 150 and all(each["text"].strip() for each in messages)

    assert len(questions) == 25
    assert Counter(each["kind"] for each in questions).keys() == KINDS
    known = {each["id"] for each in messages}
    for each in questions:
        assert known.issuperset(each["evidence"])
        assert bool(each["evidence"]) == (each["kind"] != "abstention"), each["id"]
