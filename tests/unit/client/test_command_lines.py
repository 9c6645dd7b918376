"""Lines of files become records as intended, and the error of a bad line is named."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon import EpisodicEvent, Fact, Memory
from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import EVENT_LINES, FACT_LINES, MEMORY_LINES, Line, LineForm, read_records

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
META = {"from": "file"}
FORMS = {"memories": MEMORY_LINES, "events": EVENT_LINES, "facts": FACT_LINES}


def read(tmp_path: Path, form: LineForm, *lines: str, **fields: Any) -> list[Line | Unreadable]:
    """The records of a file with these lines, to which `from=file` is added."""
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return list(read_records(str(path), form, fields, META))


@pytest.mark.parametrize(
    ("form", "fields", "whole", "text_item", "item"),
    [
        (
            MEMORY_LINES,
            {"type": "preference", "agent": "claude"},
            {"content": "Bob?", "type": "fact", "agent": "", "decay": "contextual", "metadata": {"n": 1}},
            Memory("tea", type="preference", agent="claude", metadata=META),
            Memory("Bob?", type="fact", agent="claude", decay="contextual", metadata={"n": 1, **META}),
        ),
        (
            MEMORY_LINES,
            {"user": "ada"},
            {"content": "a", "user": None, "metadata": {"n": None, "year": 2024}, "embedding": [0.5, 1]},
            Memory("tea", user="ada", metadata=META),
            (Memory("a", user="ada", metadata={"year": 2024, **META}), [0.5, 1]),
        ),
        (
            EVENT_LINES,
            {"event_type": "emotion", "user": "ada"},
            {
                "content": "a",
                "event_type": "task",
                "user": "bob",
                "event_time": "2026-05-01T13:00:00+01:00",
                "importance": 0.5,
                "metadata": {"n": 5},
                "event_id": "e-1",
                "record_time": "2026-05-01T12:00:00Z",
            },
            EpisodicEvent("emotion", "tea", user="ada", metadata=META),
            EpisodicEvent(
                "task", "a", event_id="e-1", user="bob", event_time=NOON, importance=0.5, metadata={"n": 5, **META}
            ),
        ),
        (
            FACT_LINES,
            {"namespace": ("a",), "index": ("title",)},
            {"namespace": ["b"], "key": "k", "value": {"n": 5}, "ttl_s": 90, "embedding": [0.5], "index": False},
            Fact(("a",), "", {"content": "tea"}, META, index=("title",)),
            (Fact(["b"], "k", {"n": 5}, META, ttl=timedelta(seconds=90), index=False), [0.5]),  # type: ignore[arg-type]
        ),
    ],
)
def test_a_line_is_a_text_or_an_object_and_options_fill_missing_fields(
    tmp_path: Path, form: LineForm, fields: dict[str, Any], whole: dict[str, Any], text_item: Any, item: Any
) -> None:
    text, full = read(tmp_path, form, '"tea"', "", json.dumps(whole), **fields)

    assert isinstance(text, Line) and isinstance(full, Line)
    assert (text.item, full.item) == (text_item, item)
    assert (text.place, full.place) == (f"{tmp_path}/lines.jsonl:1", f"{tmp_path}/lines.jsonl:3")


@pytest.mark.parametrize(
    ("record", "form"),
    [
        (Memory("text", "m-1", type="a", is_global=True, decay="reinforceable", metadata=META), MEMORY_LINES),
        (EpisodicEvent("task", "Grüße", "e-1", "ada", event_time=NOON, importance=0.5, metadata=META), EVENT_LINES),
        (Fact(("user", "ada"), "k", {"n": [1, None]}, META, NOON, NOON, timedelta(days=1), ("a", "b")), FACT_LINES),
    ],
)
def test_a_printed_record_can_be_read_again(tmp_path: Path, record: Any, form: LineForm) -> None:
    [line] = read(tmp_path, form, record.to_json())

    assert isinstance(line, Line)
    assert line.item.to_json() == record.to_json()


@pytest.mark.parametrize(
    ("form", "line", "problem"),
    [
        *((form, "Ada likes tea.", "a line is a text in quotes, such as ") for form in FORMS),
        *((form, line, "must be quoted text or an object") for form in FORMS for line in ("5", "[1]")),
        ("memories", '{"content": "a", "agnet": "b"}', '"agnet" is not a field'),
        ("memories", '{"content": "a", "content": "b"}', "the key 'content' appears twice"),
        ("memories", '{"type": "a"}', '"content" must be text'),
        ("memories", '{"content": "a", "type": 1}', '"type" must be text'),
        ("memories", '{"content": "a", "type": false}', '"type" must be text'),
        ("memories", '{"content": "a", "is_global": "yes"}', '"is_global" must be true or false'),
        ("memories", '{"content": "a", "metadata": [1]}', '"metadata" must be an object'),
        ("memories", '{"content": "a", "metadata": []}', '"metadata" must be an object'),
        ("memories", '{"content": "a", "embedding": "x"}', '"embedding" must be a list'),
        ("events", '{"type": "task"}', '"type" is not a field'),
        ("events", '{"event_time": 5}', '"event_time" must be text'),
        ("events", '{"event_time": "noon"}', '"event_time" must be a time'),
        ("facts", '{"content": "tea"}', '"content" is not a field'),
        ("facts", '{"key": "k"}', '"value" must be an object'),
        ("facts", '{"value": []}', '"value" must be an object'),
        ("facts", '{"value": {}, "namespace": "a"}', '"namespace" must be a list of labels'),
        ("facts", '{"value": {}, "embedding": "x"}', '"embedding" must be a list of numbers'),
        ("facts", '{"value": {}, "create_time": "noon"}', '"create_time" must be'),
        ("facts", '{"value": {}, "update_time": 5}', '"update_time" must be'),
        ("facts", '{"value": {}, "ttl_s": "long"}', '"ttl_s" must be'),
        ("facts", '{"value": {}, "ttl_s": 1e300}', '"ttl_s" must be'),
    ],
)
def test_the_error_of_a_bad_line_is_named(tmp_path: Path, form: str, line: str, problem: str) -> None:
    [found] = read(tmp_path, FORMS[form], line)

    assert isinstance(found, Unreadable)
    assert problem in found.problem
    assert found.path.endswith("lines.jsonl:1")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    assert [type(each) for each in read_records(str(tmp_path / "gone"), MEMORY_LINES, {}, {})] == [Unreadable]
