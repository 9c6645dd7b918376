"""How conversations become documents: exports of ChatGPT and Claude, and sessions of Claude Code and Codex."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from mnemon import Document
from mnemon._cli.imports.forms import FORMS
from mnemon._cli.imports.found import Damaged, Item, LeftOut, Place

OTHER = "not of a person or a model"


def read(form: str, *lines: object) -> tuple[list[Document], dict[str, int]]:
    """The documents read from JSON lines, and the number of skipped parts by reason."""
    documents: list[Document] = []
    left_out: dict[str, int] = {}
    for found in FORMS[form].read(io.BytesIO("\n".join(map(json.dumps, lines)).encode()), "given"):
        match found:
            case Item(record=Document() as document):
                documents.append(document)
            case LeftOut(reason=reason, count=count):
                left_out[reason] = left_out.get(reason, 0) + count
            case other:
                raise AssertionError(other)
    return documents, left_out


def node(parent: str | None, children: list[str], role: str = "", *parts: object, **more: Any) -> dict[str, Any]:
    said = {"id": f"m-{parent}", "author": {"role": role}, "content": {"content_type": "text", "parts": parts}, **more}
    return {"parent": parent, "children": children, "message": said if role else None}


def chatgpt(**more: Any) -> dict[str, Any]:
    return {
        "title": "Trains",
        "conversation_id": "c1",
        "mapping": {
            "root": node(None, ["system"]),
            "system": node("root", ["asked"], "system", ""),
            "asked": node("system", ["first", "second"], "user", "When does it leave?", create_time=1_720_000_000.5),
            "first": node("asked", [], "assistant", "At seven.", create_time=1_720_000_010),
            "second": node("asked", ["call"], "assistant", "At eight.", create_time=1_720_000_020),
            "call": node("second", ["thanked"], "assistant", "search()", recipient="browser"),
            "thanked": node("call", [], "user", {"asset_pointer": "x"}, "Thanks!", create_time=1_720_000_030),
        },
        **more,
    }


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Tea is green. \ue200cite\ue202turn0search0\ue202turn0search1\ue201\nGood.", "Tea is green.\nGood."),
        ("Tea\ue200filecite\ue202turn0file0\ue201, green.", "Tea, green."),
        ('In \ue200entity\ue202["city","Bern","capital"]\ue201.', "In Bern."),
        ("On \ue200entity\ue2025\ue201.", "On 5."),
        ("In \ue200entity\ue202Bern\ue201.", "In Bern."),
        ("See \ue200url\ue202Tea\ue202https://example.org\ue201.", "See Tea https://example.org."),
        ("\ue203Tea\ue204 is \ue200cite", "Tea is cite"),
    ],
)
def test_the_marks_of_chatgpt_are_read_as_it_shows_them(said: str, shown: str) -> None:
    nodes = {"root": node(None, ["a"]), "a": node("root", [], "assistant", said)}
    [document], _ = read("chatgpt", chatgpt(mapping=nodes, current_node="a"))
    assert document.content == shown


@pytest.mark.parametrize("current", ["thanked", None, "gone"])
def test_the_shown_branch_of_a_conversation_of_chatgpt_is_read(current: str | None) -> None:
    documents, left_out = read("chatgpt", [chatgpt(current_node=current)])
    assert [(each.metadata["role"], each.content) for each in documents] == [
        ("user", "When does it leave?"),
        ("assistant", "At eight."),
        ("user", "Thanks!"),
    ]
    assert documents[0].doc_id == "chatgpt/c1/m-system"
    assert documents[0].metadata == {
        "role": "user",
        "source": "chatgpt",
        "conversation": "c1",
        "title": "Trains",
        "time": datetime(2024, 7, 3, 9, 46, 40, 500_000, tzinfo=UTC),
    }
    assert left_out == {OTHER: 2, "on another branch": 1}


def test_a_conversation_of_claude_is_read_with_what_was_attached() -> None:
    said = {"uuid": "m1", "text": "", "sender": "human", "created_at": "2026-01-31T12:00:00.5Z"}
    content = [{"type": "text", "text": "It leaves at eight."}, {"type": "tool_use", "text": "no"}]
    attached = [{"file_name": "plan.txt", "extracted_content": "Track 5."}, {"file_name": "map.png"}]
    documents, left_out = read(
        "claude",
        [
            {
                "uuid": "c1",
                "name": "Trains",
                "chat_messages": [
                    {**said, "text": "When does it leave?", "attachments": attached},
                    {**said, "uuid": "m2", "sender": "assistant", "text": "old", "content": content},
                    {**said, "uuid": "m3"},
                ],
            }
        ],
    )
    assert [(each.doc_id, each.metadata["role"], each.content) for each in documents] == [
        ("claude/c1/m1", "user", "When does it leave?"),
        ("claude/c1/m1/1", "user", "Track 5."),
        ("claude/c1/m2", "assistant", "It leaves at eight."),
    ]
    assert documents[1].metadata["file_name"] == "plan.txt"
    assert documents[0].metadata["time"] == datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
    assert left_out == {"without text": 2}


def test_a_session_of_claude_code_is_read_without_tools_and_what_the_program_adds() -> None:
    def line(uuid: str, kind: str, content: object, **more: Any) -> dict[str, Any]:
        return {
            "uuid": uuid,
            "sessionId": "s1",
            "type": kind,
            "cwd": "/srv/app",
            "timestamp": "2026-01-31T12:00:00Z",
            "message": {"role": kind, "content": content},
            **more,
        }

    documents, left_out = read(
        "claude-code",
        {"type": "summary", "summary": "Tests", "leafUuid": "l2"},
        line("l1", "user", "Why does the test fail?"),
        line(
            "l2", "assistant", [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "The port is in use."}]
        ),
        line("l3", "assistant", [{"type": "tool_use", "name": "Bash"}]),
        line("l4", "user", [{"type": "tool_result", "content": "ok"}]),
        line("l5", "user", "<command-name>/clear</command-name>"),
        line("l6", "user", "Caveat", isMeta=True),
        line("l7", "user", "What a helper was asked", isSidechain=True),
    )
    assert [(each.doc_id, each.metadata["role"], each.content) for each in documents] == [
        ("claude-code/l1", "user", "Why does the test fail?"),
        ("claude-code/l2", "assistant", "The port is in use."),
    ]
    assert (documents[0].metadata["conversation"], documents[0].metadata["folder"]) == ("s1", "/srv/app")
    assert left_out == {OTHER: 4, "without text": 2}


def test_a_session_of_codex_is_read_in_its_present_and_its_former_form() -> None:
    def said(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    def line(payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
        return {"timestamp": "2026-01-31T12:00:00Z", "type": kind, "payload": payload}

    documents, left_out = read(
        "codex",
        line({"id": "s1", "cwd": "/srv/app"}, "session_meta"),
        line(said("user", "<environment_context>…")),
        line(said("user", "Why does the test fail?")),
        line({"type": "user_message", "message": "Why does the test fail?"}, "event_msg"),
        line({"type": "function_call", "name": "shell"}),
        line(said("assistant", "The port is in use.")),
    )
    assert [(each.doc_id, each.metadata["role"], each.content) for each in documents] == [
        ("codex/s1/3", "user", "Why does the test fail?"),
        ("codex/s1/6", "assistant", "The port is in use."),
    ]
    assert left_out == {OTHER: 3}
    former, _ = read(
        "codex", {"id": "s0", "timestamp": "2025-05-01T00:00:00Z", "instructions": None}, said("user", "Hi")
    )
    assert [each.doc_id for each in former] == ["codex/s0/2"]


def test_a_conversation_without_messages_is_told_and_the_others_are_read() -> None:
    given = json.dumps([{"title": "a", "mapping": 5}, chatgpt()], indent=1).encode()
    damaged, *others = FORMS["chatgpt"].read(io.BytesIO(given), "given")
    assert isinstance(damaged, Damaged) and damaged.place == Place(2, 1) and damaged.error.message.startswith("mapping")
    assert sum(isinstance(each, Item) for each in others) == 3
