"""The commands for conversations against a real server."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mnemon import Client

from tests.support.command import Done, run, run_json
from tests.support.server import server_process, wait_until
from tests.unit.client.test_imported_conversations import chatgpt

CLAUDE = {
    "uuid": "c1",
    "name": "Trains",
    "chat_messages": [
        {"uuid": "m1", "text": "When does it leave?", "sender": "human", "created_at": "2026-01-31T12:00:00Z"},
        {"uuid": "m2", "text": "At eight.", "sender": "assistant", "created_at": "2026-01-31T12:00:05Z"},
    ],
}
CALL = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data")) as running:
        yield running.address()


def chat(address: str, user: str, *words: str | Path, stdin: str = "") -> Done:
    """Runs a command for conversations, which must succeed."""
    done = run(address, "chat", *words, "--user", user, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done


def said(address: str, user: str, conversation: str) -> list[tuple[str, str, str]]:
    """The role, the name and the words of each message."""
    found = run_json(address, "chat", "show", conversation, "--user", user, "-n", "0")
    return [(each["role"], each["name"], each["content"]) for each in found]


def written(tmp_path: Path, name: str, content: object) -> Path:
    """A file with a text, or with JSON."""
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_what_is_added_is_shown_as_a_transcript_listed_and_removed(address: str, user: str) -> None:
    chat(address, user, "add", "c1", "Which city do I live in?", "--name", "Ada", "--id", "q1")
    assert chat(address, user, "add", "c1", "Which city do I live in?", "--id", "q1", "--name", "Ada").stdout == (
        "known already: q1\n"
    )
    chat(address, user, "add", "c1", "In Bern.\nuser  2026", "--role", "assistant", "--happened", "2d")

    shown = chat(address, user, "show", "c1").stdout.splitlines()
    assert re.fullmatch(r"Ada \(user\)  20[-0-9]+ [:0-9]+  id=q1", shown[0])
    assert shown[1] == "  Which city do I live in?"
    assert shown[2].startswith("assistant  20") and shown[3:] == ["  In Bern.", "  user  2026"]
    last = chat(address, user, "show", "c1", "-n", "1")
    assert "Which city" not in last.stdout and "there are earlier ones" in last.stderr
    listed = chat(address, user, "list").stdout
    assert "c1" in listed and f"user={user}" in listed
    named = shown[2].partition("  id=")[2]
    assert chat(address, user, "delete", "c1", "--message", named, "--yes").stdout == "removed 1 message\n"
    assert [text for _, _, text in said(address, user, "c1")] == ["Which city do I live in?"]
    assert run(address, "chat", "delete", "c1", "--user", user, stdin="n\n").returncode == 1
    assert chat(address, user, "delete", "c1", stdin="y\n").stdout == "removed 1 event\n"
    gone = run(address, "chat", "show", "c1", "--user", user)
    assert (gone.returncode, f"{user} has no conversation 'c1'" in gone.stderr) == (1, True)
    assert f"`mnemon chat list --user {user}`" in gone.stderr


def test_a_transcript_names_an_origin_that_its_role_does_not(address: str, user: str) -> None:
    with Client(address) as client:
        for role, origin in (("user", ""), ("user", "web"), ("tool", ""), ("assistant", "user")):
            client.conversations.append("c", [{"role": role, "content": "x"}], user=user, origin=origin or None)
    heads = re.findall(r"^(\w+)  [-0-9]+ [:0-9]+(.*)  id=\w+$", chat(address, user, "show", "c").stdout, re.MULTILINE)
    assert heads == [("user", ""), ("user", "  from web"), ("tool", ""), ("assistant", "  from user")]


def test_a_message_is_read_from_standard_input(address: str, user: str) -> None:
    chat(address, user, "add", "gym", "-", stdin="Leg day.\nFive sets.\n")
    assert said(address, user, "gym") == [("user", "", "Leg day.\nFive sets.")]
    empty = run(address, "chat", "add", "gym", "-", "--user", user, stdin="\n")
    assert (empty.returncode, "standard input is empty" in empty.stderr) == (2, True)


def test_the_context_shows_the_summary_what_is_recalled_and_the_last_messages(address: str, user: str) -> None:
    with Client(address) as client:
        client.remember("Anna is allergic to peanuts.", user=user)
        client.timeline.add("summary", "They plan a dinner.", user=user, conversation="c")
        chat(address, user, "add", "c", "Which nuts is Anna allergic to?")
        wait_until(lambda: not client.timeline.status().text_pending_count)

    shown = chat(address, user, "context", "c").stdout
    assert shown.index("They plan a dinner.") < shown.index("peanuts") < shown.index("Which nuts")
    [found] = run_json(address, "chat", "context", "c", "--user", user, "--max-tokens", "100")
    assert "peanuts" in found["recall"]["context"] and found["tokens"] <= 100


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["add", "c", "hello", "--role", "x" * 200], "--role: must be at most 128 bytes"),
        (["add", "c", "hello", "--id", "x" * 300], "--id: must be at most 256 bytes"),
        (["add", "x" * 300, "hello"], "CONVERSATION: must be at most 256 bytes"),
        (["add", "c", "hello", "--meta", "speaker=ann"], "--meta: must not be set"),
        (["show", "c", "--limit", "1000"], "--limit must be below 1,000"),
        (["show", "c", "--persona", "x" * 2000], "--persona: must"),
        (["context", "c", "--query", "x" * 70_000], "--query: must"),
        (["delete", "c", "--last", "1", "--after", "m"], "one of --message, --last and --after"),
        (["delete", "c", "--yes", "--after", "x" * 300], "--after: must"),
        (["delete", "c", "--yes", "--message", "x" * 300], "--message: must"),
    ],
)
def test_an_error_names_the_option(address: str, user: str, words: list[str], named: str) -> None:
    done = run(address, "chat", *words, "--user", user)
    assert done.returncode == 2 and named in done.stderr


def test_exports_become_conversations_and_a_later_one_adds_what_is_new(address: str, user: str, tmp_path: Path) -> None:
    done = chat(address, user, "import", written(tmp_path, "chatgpt.json", [chatgpt(current_node="thanked")]))
    assert "chatgpt/c1" in done.stdout and "Trains" in done.stdout
    assert "messages of 1 conversation: 3 added, 0 known, 0 failed; left out: 2 not of" in done.stdout
    assert said(address, user, "chatgpt/c1") == [
        ("user", "", "When does it leave?"),
        ("assistant", "", "At eight."),
        ("user", "", "Thanks!"),
    ]

    chat(address, user, "import", written(tmp_path, "claude.json", [CLAUDE]))
    later = {**CLAUDE, "chat_messages": [*CLAUDE["chat_messages"], {"uuid": "m3", "text": "Hm.", "sender": "human"}]}
    done = chat(address, user, "import", written(tmp_path, "claude.json", [later]))
    assert "1 added, 2 known, 0 failed" in done.stdout
    assert [text for _, _, text in said(address, user, "claude/c1")] == ["When does it leave?", "At eight.", "Hm."]
    [first, *_] = run_json(address, "chat", "show", "claude/c1", "--user", user)
    assert (first["message_id"], first["message_time"]) == ("claude/c1/m1", "2026-01-31T12:00:00+00:00")
    assert first["metadata"] == {"source": "claude", "title": "Trains"}


def test_messages_with_roles_are_read_from_lists_lines_and_objects(address: str, user: str, tmp_path: Path) -> None:
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "Which weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "sunny", "tool_call_id": "t1"},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}], "created_at": 1_780_000_000},
    ]
    texts = ["Which weather?", "", "sunny", "It is sunny."]
    chat(address, user, "import", written(tmp_path, "list.json", turns))
    chat(address, user, "import", written(tmp_path, "lines.jsonl", "\n".join(map(json.dumps, turns))))
    chat(address, user, "import", written(tmp_path, "object.json", {"messages": turns}))
    pair = "\n".join(json.dumps({"messages": [{"role": "user", "content": each}]}) for each in ("one", "two"))
    chat(address, user, "import", written(tmp_path, "pair.jsonl", pair))
    for name in ("list.json", "lines.jsonl", "object.json"):
        assert [text for _, _, text in said(address, user, name)] == texts
    assert said(address, user, "pair.jsonl/2") == [("user", "", "two")]
    found = run_json(address, "chat", "show", "list.json", "--user", user)
    assert found[1]["tool_calls"] == [{"id": "t1", "name": "weather", "arguments": '{"city": "Bern"}'}]
    assert found[3]["message_time"].startswith("2026-05-28") and '"type": "text"' in found[3]["payload"]

    lines = run(address, "chat", "show", "list.json", "--user", user, "--json").stdout
    copied = chat(address, user, "import", written(tmp_path, "copy.jsonl", lines), "--conversation", "copy")
    assert "4 added" in copied.stdout
    own = ("event_id", "sequence")
    before, after = (
        [{name: value for name, value in each.items() if name not in own} for each in found]
        for found in (found, run_json(address, "chat", "show", "copy", "--user", user))
    )
    assert after == before


def test_a_transcript_is_read_by_its_speakers(address: str, user: str, tmp_path: Path) -> None:
    text = (
        "On Monday\nAnn: Hello.\nAre you there?\n\n  Note: quietly\n**Rex:** Yes.\nUser: Good.\nAssistant:\nAnn: Bye.\n"
    )
    path = written(tmp_path, "talk.txt", text)
    done = chat(address, user, "import", path, "--assistant", "rex")
    assert "4 added, 0 known, 0 failed; left out: 1 before the first speaker, 1 without text" in done.stdout
    assert said(address, user, "talk.txt") == [
        ("user", "Ann", "Hello.\nAre you there?\n\n  Note: quietly"),
        ("assistant", "Rex", "Yes."),
        ("user", "", "Good."),
        ("user", "Ann", "Bye."),
    ]
    longer = written(tmp_path, "talk.txt", f"{text}Rex: Bye.\n")
    assert "1 added, 4 known" in chat(address, user, "import", longer, "--assistant", "rex").stdout
    inserted = written(tmp_path, "talk.txt", f"Ann: Anybody?\n{text}Rex: Bye.\n")
    assert "1 added, 5 known" in chat(address, user, "import", inserted, "--assistant", "rex").stdout
    assert "1 added" in chat(address, user, "import", "-", "--conversation", "in", stdin="Ann: Hi.").stdout


def test_a_messenger_tells_when_something_was_said(address: str, user: str, tmp_path: Path) -> None:
    def local(*time: int) -> datetime:
        return datetime(*time).astimezone()  # type: ignore[arg-type]

    ios = "[12.03.24, 10:15:33] Ann: \u200eHello\nNote: bring wine\n[1.4.24, 23:59:00] Ben B.: Yes: two\n"
    android = (
        "4/3/2024, 10:14 - Messages are encrypted.\n4/3/2024, 10:15 - +49 170 12: Hi\n13/3/2024, 10:16 - Ann: Yo\n"
    )
    american = "3/4/24, 10:15\u202fAM - Ann: Hi\n3/4/24, 12:05\u202fPM - Ben: Yo\n"
    telegram = "Ann Lee, [12.03.2024 10:15]\r\nHello\r\nthere\r\n\r\nBen, [12.03.2024 10:16]\r\nHi\r\n"
    found = {}
    for name, text in (
        ("ios", ios),
        ("telegram", telegram),
        ("android", android),
        ("american", american),
        ("chat", "[10:15] <ann> Hi\n"),
    ):
        done = chat(address, user, "import", written(tmp_path, f"{name}.txt", text))
        assert "0 failed" in done.stdout and ("1 of the messenger" in done.stdout) == (name == "android")
        messages = run_json(address, "chat", "show", f"{name}.txt", "--user", user)
        found[name] = [
            (each["name"], each["content"], datetime.fromisoformat(each["message_time"])) for each in messages
        ]
    assert found.pop("chat")[0][:2] == ("ann", "Hi")
    assert found == {
        "ios": [
            ("Ann", "\u200eHello\nNote: bring wine", local(2024, 3, 12, 10, 15, 33)),
            ("Ben B.", "Yes: two", local(2024, 4, 1, 23, 59)),
        ],
        "telegram": [
            ("Ann Lee", "Hello\nthere", local(2024, 3, 12, 10, 15)),
            ("Ben", "Hi", local(2024, 3, 12, 10, 16)),
        ],
        "android": [("+49 170 12", "Hi", local(2024, 3, 4, 10, 15)), ("Ann", "Yo", local(2024, 3, 13, 10, 16))],
        "american": [("Ann", "Hi", local(2024, 3, 4, 10, 15)), ("Ben", "Yo", local(2024, 3, 4, 12, 5))],
    }


@pytest.mark.parametrize(
    "lines",
    [
        # Placeholders for media, a deleted message and a missed call, in the languages of several phones.
        ("<Media omitted>", "This message was deleted", "Missed voice call"),
        ("<Medien ausgeschlossen>", "Diese Nachricht wurde gelöscht.", "Verpasster Sprachanruf"),
        ("<Multimedia omitido>", "Se eliminó este mensaje.", "Llamada perdida"),
        ("\u200eimage omitted", "\u200eYou deleted this message.", "\u200eMissed video call, \u200e10:15"),
        ("vidéo omise", "<anexado: nota.pdf>", "\u200eMessages and calls are end-to-end encrypted."),
        ("\u200e画像は省略されました", "\u200eこのメッセージは削除されました", "\u200e<attached: 01-PHOTO-2024.jpg>"),
    ],
)
def test_placeholders_for_media_deleted_messages_and_calls_are_not_imported(
    address: str, user: str, tmp_path: Path, lines: tuple[str, ...]
) -> None:
    spoken = ("Deleted it.", "The image was omitted", "Look \u200eaudio omitted", "Yes \u200e<This message was edited>")
    whole = [*lines, *spoken, f"{lines[0]}\nthe caption"]
    text = "".join(f"[12.03.24, 10:15:{number:02}] Ann: {line}\n" for number, line in enumerate(whole))
    done = chat(address, user, "import", written(tmp_path, "chat.txt", text))
    assert "5 added" in done.stdout and "left out: 3 without text" in done.stdout
    found = [content for _, _, content in said(address, user, "chat.txt")]
    assert found == ["Deleted it.", "The image was omitted", "Look", "Yes", "the caption"]


def telegram_chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "Trip", "type": "private_group", "id": 42, "messages": messages, **more}


def telegram_message(number: int, text: object, **more: Any) -> dict[str, Any]:
    seconds = 1_710_238_500 + number
    local = datetime.fromtimestamp(seconds).isoformat()
    times = {"date": local, "date_unixtime": str(seconds)}
    return {"id": number, "type": "message", **times, "from": "Ann", "from_id": "user1", "text": text, **more}


def test_an_export_of_telegram_is_read_with_its_marked_texts_and_without_its_notices(
    address: str, user: str, tmp_path: Path
) -> None:
    poll = {
        "question": "When?",
        "closed": False,
        "total_voters": 2,
        "answers": [{"text": "May", "voters": 2}, {"text": "June"}],
    }
    messages = [
        {"id": 1, "type": "service", "date": "2024-03-12T10:15:00", "actor": "Ann", "action": "create_group"},
        telegram_message(
            2,
            [
                "See ",
                {"type": "text_link", "text": "this", "href": "https://a.example"},
                ", ",
                {"type": "bold", "text": "Ben"},
            ],
        ),
        telegram_message(3, "", media_type="sticker", sticker_emoji="👍"),
        telegram_message(
            4,
            "Fine 🎉",
            reply_to_message_id=2,
            forwarded_from="News",
            edited="2024-03-13T10:15:00",
            edited_unixtime="1710324900",
        ),
        telegram_message(5, "", poll=poll, **{"from": None}),
        {"id": 6, "type": "unsupported"},
    ]
    path = written(tmp_path, "result.json", telegram_chat(*messages))
    done = chat(address, user, "import", path)
    assert "reading an export of Telegram Desktop" in done.stderr
    assert "3 added, 0 known, 0 failed; left out: 2 of the messenger, 1 without text" in done.stdout
    first, second, third = run_json(address, "chat", "show", "telegram/42", "--user", user)
    assert [(each["name"], each["content"]) for each in (first, second, third)] == [
        ("Ann", "See this (https://a.example), Ben"),
        ("Ann", "Fine 🎉"),
        ("user1", "When?\nMay\nJune"),
    ]
    assert second["message_id"] == "telegram/42/4"
    assert datetime.fromisoformat(second["message_time"]).timestamp() == 1_710_238_504
    edited = second["metadata"].pop("edited")
    assert (second["metadata"], datetime.fromisoformat(edited).timestamp()) == (
        {"title": "Trip", "forwarded_from": "News", "reply_to": "telegram/42/2"},
        1_710_324_900,
    )
    assert "0 added, 3 known" in chat(address, user, "import", path).stdout


def test_all_chats_of_telegram_are_conversations_and_a_bot_is_the_assistant(
    address: str, user: str, tmp_path: Path
) -> None:
    bot = telegram_chat(
        telegram_message(1, "Hi"),
        telegram_message(2, "Hello!", **{"from": "Helper", "from_id": "user7"}),
        type="bot_chat",
        id=7,
    )
    notes = {"type": "saved_messages", "id": 1, "messages": [telegram_message(1, "Buy milk")]}
    whole = {
        "about": "…",
        "contacts": {"list": [{"user_id": 7}]},
        "chats": {"about": "…", "list": [bot, notes]},
        "left_chats": {"about": "…", "list": [telegram_chat(telegram_message(9, "Bye", **{"from": "Rex"}))]},
    }
    path = written(tmp_path, "result.json", whole)
    assert "messages of 3 conversations: 4 added" in chat(address, user, "import", path, "--assistant", "rex").stdout
    assert said(address, user, "telegram/7") == [("user", "Ann", "Hi"), ("assistant", "Helper", "Hello!")]
    assert said(address, user, "telegram/42") == [("assistant", "Rex", "Bye")]
    titles = {each["conversation_id"]: each["title"] for each in run_json(address, "chat", "list", "--user", user)}
    assert titles["telegram/1"] == "Saved messages"


def test_a_line_with_a_clock_does_not_make_a_transcript_a_timed_one(address: str, user: str, tmp_path: Path) -> None:
    path = written(tmp_path, "plan.txt", "Ann: The plan:\n12:30 lunch: pizza\nBen: Fine.\n")
    chat(address, user, "import", path)
    assert said(address, user, "plan.txt") == [
        ("user", "Ann", "The plan:\n12:30 lunch: pizza"),
        ("user", "Ben", "Fine."),
    ]


def test_chats_of_open_webui_are_read_on_the_branch_shown(address: str, user: str, tmp_path: Path) -> None:
    def node(name: str, parent: str | None, role: str, content: str) -> dict[str, Any]:
        return {"id": name, "parentId": parent, "role": role, "content": content, "timestamp": 1_780_000_000}

    nodes = [
        node("m1", None, "user", "Name a bird."),
        node("m2", "m1", "assistant", "A wren."),
        node("m3", "m1", "assistant", "An owl."),
        node("m4", "m3", "user", "When does it sleep?"),
    ]
    tree = {"currentId": "m4", "messages": {each["id"]: each for each in nodes}}
    chats = [
        {"id": "c1", "title": "Birds", "chat": {"history": tree, "messages": []}},
        {"id": "c2", "chat": {"history": {}, "messages": nodes[:2]}},
        {"id": "c3", "chat": {"history": {"currentId": "x", "messages": {"x": 5}}}},
    ]
    done = run(address, "chat", "import", written(tmp_path, "chats.json", json.dumps(chats)), "--user", user)
    assert (done.returncode, "5 added, 0 known, 1 failed" in done.stdout) == (1, True), done.stderr
    birds = [("user", "", "Name a bird."), ("assistant", "", "An owl."), ("user", "", "When does it sleep?")]
    assert said(address, user, "c1") == birds
    assert [text for *_, text in said(address, user, "c2")] == ["Name a bird.", "A wren."]

    turns = [{"from": "human", "value": "Do owls sleep?"}, {"from": "gpt", "value": "By day."}]
    chat(address, user, "import", written(tmp_path, "share.json", json.dumps([{"id": "s1", "conversations": turns}])))
    assert said(address, user, "s1") == [("user", "", "Do owls sleep?"), ("assistant", "", "By day.")]


def test_subtitles_are_read_without_their_numbers_and_times(address: str, user: str, tmp_path: Path) -> None:
    zoom = (
        "WEBVTT\n\n1\n00:00:01.000 --> 00:00:04.000\nAnn Lee: The budget\n\n"
        "2\n00:00:05.000 --> 00:00:07.500\nis tight: spend less.\n\n3\n00:00:08.000 --> 00:00:09.500\nBob: Yes.\n"
    )
    teams = (
        "\ufeffWEBVTT\r\n\r\nNOTE made: today\r\n\r\na1/2-0\r\n00:03.000 --> 00:05.000 align:start\r\n"
        "<v Ann Lee>The budget\r\nis <i>tight</i>: spend less.</v>\r\n\r\n"
        "00:05.100 --> 00:06.000\r\n<v Bob>Yes.</v>\r\n"
    )
    srt = (
        "1\n00:00:01,000 --> 00:00:04,000\nAnn Lee: The budget\nis tight: spend less.\n\n"
        "2\n00:00:08,000 --> 00:00:09,500\nBob: Yes.\n"
    )
    for name, text in (("zoom.vtt", zoom), ("teams.vtt", teams), ("film.srt", srt)):
        done = chat(address, user, "import", written(tmp_path, name, text))
        assert "2 added, 0 known, 0 failed\n" in done.stdout
        spoken = [("user", "Ann Lee", "The budget\nis tight: spend less."), ("user", "Bob", "Yes.")]
        assert said(address, user, name) == spoken
    unnamed = written(tmp_path, "film.vtt", zoom.replace("Ann Lee: ", "").replace("WEBVTT", "WEBVTT\nKind: captions"))
    assert "holds no conversation" in run(address, "chat", "import", unnamed, "--user", user).stderr


def test_the_head_of_a_mail_is_no_conversation(address: str, user: str, tmp_path: Path) -> None:
    mail = written(tmp_path, "mail.txt", "From: ann@x.org\nTo: ben@x.org\nSubject: Hi\n\nNote: bring wine.\n")
    done = run(address, "chat", "import", mail, "--user", user)
    assert (done.returncode, "holds no conversation" in done.stderr) == (1, True)


def test_a_message_that_is_refused_fails_alone(address: str, user: str, tmp_path: Path) -> None:
    turns = [{"role": "user", "content": f"turn {number}"} for number in range(50)]
    turns[20]["role"] = "x" * 200
    path = written(tmp_path, "turns.json", [*turns, {"content": "who?"}])
    done = run(address, "chat", "import", path, "--user", user)
    assert done.returncode == 1 and "49 added, 0 known, 2 failed" in done.stdout
    assert re.search(r"line 1, item 21 \(turns.json/\w+\): role: must be at most 128 bytes", done.stderr)
    assert "item 51: role: must say who speaks" in done.stderr
    assert [text for _, _, text in said(address, user, "turns.json")] == [f"turn {n}" for n in range(50) if n != 20]

    turns[20] = {"role": "user", "content": "turn 20"}
    turns[0] |= {"content": "something else", "id": "first"}
    # The ids of the others are made of what they say, so they are known though one was inserted.
    done = run(address, "chat", "import", written(tmp_path, "turns.json", turns), "--user", user, "--json")
    conversation, _ = map(json.loads, done.stdout.splitlines())
    assert (conversation["added"], conversation["known"]) == (2, 48)
    turns[0]["content"] = "yet something else"
    done = run(address, "chat", "import", written(tmp_path, "turns.json", turns), "--user", user, "--json")
    failed, conversation, summary = map(json.loads, done.stdout.splitlines())
    assert failed["error"]["reason"] == "MESSAGE_EXISTS" and failed["id"] == "first"
    assert (conversation["known"], conversation["failed"]) == (49, 1) and "added" not in conversation
    assert summary["summary"] == {"conversations": 1, "added": 0, "known": 49, "failed": 1, "left_out": {}}


def test_a_folder_is_read_and_files_without_conversations_are_told(address: str, user: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path, "in/a.txt", "Ann: Hello.")
    written(tmp_path, "in/b.txt", "nothing is said here")
    written(tmp_path, "in/c.json", [CLAUDE])
    done = chat(address, user, "import", tmp_path / "in")
    assert "messages of 2 conversations: 3 added" in done.stdout and "b.txt" in done.stderr
    for words, named in (
        (["in/b.txt"], "--from names them"),
        (["in/c.json", "--conversation", "c"], "--conversation: conversations.json of Claude's export"),
        (["in/c.json", "--assistant", "c"], "--assistant is for transcripts"),
    ):
        refused = run(address, "chat", "import", tmp_path / words[0], *words[1:], "--user", user)
        assert refused.returncode != 0 and named in refused.stderr


def test_exports_of_whatsapp_with_one_name_stay_apart(address: str, user: str, tmp_path: Path) -> None:
    for number, name in enumerate(("Ann", "Ben")):
        file = tmp_path / f"WhatsApp Chat - {name}" / "_chat.txt"
        file.parent.mkdir()
        file.write_text(f"[12.03.24, 10:1{number}:33] {name}: Hello.\n", encoding="utf-8")
        assert run(address, "chat", "import", file, "--user", user).returncode == 0
    found = run_json(address, "chat", "list", "--user", user)
    assert {each["conversation_id"]: each["message_count"] for each in found} == {
        "WhatsApp Chat - Ann/_chat.txt": 1,
        "WhatsApp Chat - Ben/_chat.txt": 1,
    }
