"""How the content of a file tells its form, and how tables, mails and pages become documents."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mnemon import Document
from mnemon._cli.documents.sources import Input, SourceOptions, read_inputs
from mnemon._cli.imports.forms import ARCHIVE, EMPTY, FORMS, NO_RECORDS, form_of
from mnemon._cli.imports.found import Damaged, Found, Item, LeftOut, Place


def read(form: str, content: str | bytes) -> list[Found]:
    given = content.encode() if isinstance(content, str) else content
    return list(FORMS[form].read(io.BytesIO(given), "given"))


def documents_of(form: str, content: str | bytes) -> list[Document]:
    return [each.record for each in read(form, content) if isinstance(each, Item) and isinstance(each.record, Document)]


def failures_of(form: str, content: str | bytes) -> list[tuple[Place, str]]:
    return [(each.place, each.error.message) for each in read(form, content) if isinstance(each, Damaged)]


@pytest.mark.parametrize(
    ("form", "record"),
    [
        ("chatgpt", [{"title": "t", "mapping": {}}]),
        ("claude", {"uuid": "c", "name": "", "chat_messages": []}),
        ("claude-code", {"type": "user", "uuid": "u", "sessionId": "s", "message": {}}),
        ("claude-code", {"type": "summary", "summary": "s", "leafUuid": "u"}),
        ("codex", {"timestamp": "2026-01-31T12:00:00Z", "type": "session_meta", "payload": {"id": "s"}}),
        ("codex", {"id": "s", "timestamp": "2026-01-31T12:00:00Z", "instructions": None}),
        ("mem0", {"results": [{"id": "a", "memory": "t", "user_id": "ada"}]}),
        ("mem0", {"items": [{"id": "a", "content": "t", "state": "active"}]}),
        ("langgraph", {"namespace": ["a"], "key": "k", "value": {}}),
        ("chroma", {"ids": ["a"], "documents": ["t"]}),
        ("zep", {"edges": [{"uuid": "e", "fact": "t"}]}),
        ("graphiti", [{"uuid": "e", "content": "t", "source_description": "chat"}]),
        ("mcp-memory", {"type": "entity", "name": "Ada", "observations": []}),
        ("mcp-memory", {"entities": [{"name": "Ada", "entityType": "person"}], "relations": []}),
        ("jsonl", {"id": 5, "text": "t"}),
        (ARCHIVE, {"mnemon_archive": 1}),
        (ARCHIVE, {"kind": "fact", "id": "f", "content": "t"}),
    ],
)
def test_the_content_of_json_tells_its_form(form: str, record: object) -> None:
    for content in (json.dumps(record), json.dumps(record, indent=1), json.dumps(record) + "\n{"):
        file = io.BytesIO(content.encode())
        assert form_of(file) == form
        assert file.read() == content.encode()


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("mbox", "From ada@example.org Sat Jan 31 12:00:00 2026\nSubject: Tea\n\nGreen.\n"),
        ("csv", "name,age\nAda,36\n"),
        ("csv", 'name;said\nAda;"yes; and\nno"\nBo;no'),
        ("csv", "\ufeffname\tage\r\nAda\t36\r\n"),
        ("html", "<!-- a page --><!DOCTYPE html>\n<html><body>Tea</body></html>"),
        ("html", '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"></html>'),
        ("markdown", "---\ntitle: Tea\n---\n# Tea"),
        ("mbox", "From - 31 Jan\nSubject: Tea\n\nGreen.\n"),
        ("mbox", "Received: from a\n by b;\n Sat\nFrom: Ada <ada@example.org>\nDate: Sat, 31 Jan 2026\n\nGreen.\n"),
        (ARCHIVE, ""),
        (EMPTY, "[]"),
        (EMPTY, '{"next": null, "results": []}\n'),
    ],
)
def test_the_content_of_other_files_tells_their_form(form: str, content: str) -> None:
    assert form_of(io.BytesIO(content.encode())) == form


@pytest.mark.parametrize("content", ["note\nTea\nCoffee\n", "a,b\n1,2,3\n1\n", "From,To\nAda\n", "[a],b\n1,2\n", ""])
def test_a_table_is_known_by_its_name(content: str) -> None:
    assert form_of(io.BytesIO(content.encode()), "Export.CSV") == "csv"


def test_one_mail_is_known_by_the_name_of_its_file() -> None:
    assert form_of(io.BytesIO(b"X-Mailer: tea\n\nGreen.\n"), "tea.EML") == "mbox"


def test_records_behind_broken_ones_are_not_lost_silently() -> None:
    content = b'{"id": "\xe9"}\n' * 20 + b'{"id": "a", "memory": "t"}\n'
    assert form_of(io.BytesIO(content), "a.jsonl") == EMPTY
    *broken, record = [
        each.error.message for each in NO_RECORDS.read(io.BytesIO(content), "a.jsonl") if isinstance(each, Damaged)
    ]
    assert len(broken) == 20 and "say --from" in record


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"colour": "red", "size": 5}', "its first record has the fields colour, size"),
        ("Dear Ada,\nhow are you, and how is Bo?\n", "it is neither JSON nor a table"),
        ("From now on, tea.\n\nGreen.\n", "it is neither JSON nor a table"),
        ("From: Ada\n\nGreen.\n", "it is neither JSON nor a table"),
        ("Ada: Tea?\nBo: Yes.\n", "`mnemon chat import` transcripts of messengers"),
        ("[[1], 2]", "it has no JSON objects"),
        ("{}", "its first record is an empty object"),
        ('[\n {"id": 1,\n  "memory" "t"}]', "line 3 is not JSON: column 12: Expecting ':' delimiter"),
        ("<!-- a -->" * 60, "it is neither JSON nor a table"),
        ("PK\x03\x04", "it is a ZIP archive; unpack it"),
        (b"\x1f\x8b\x08", "it is packed by gzip; unpack it"),
    ],
)
def test_a_file_of_another_form_is_refused_and_says_why(content: str | bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        form_of(io.BytesIO(content.encode() if isinstance(content, str) else content))
    assert "unpack" in said or all(f"{name}: " in str(refused.value) for name in FORMS)


def test_each_row_of_a_table_becomes_a_document() -> None:
    table = (
        'id,Text,Price (EUR),new,zip\n7,"Green ""sencha"" tea",4.50,true,01234\n\n8,"Black\ntea",,,\n,only,1,2,3,4\n'
    )
    first, second = documents_of("csv", table)
    assert (first.doc_id, first.content) == ("given/7", 'Green "sencha" tea')
    assert first.metadata == {"source": "given", "Price_EUR": "4.50", "new": True, "zip": "01234"}
    assert (second.content, second.metadata) == ("Black\ntea", {"source": "given"})
    assert failures_of("csv", table) == [(Place(6), "row: has 6 cells, and the first line names 5")]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("36", 36),
        ("-4.5", -4.5),
        ("1e-07", 1e-07),
        ("1.10", "1.10"),
        ("12E5", "12E5"),
        ("1e400", "1e400"),
        ("-0", "-0"),
        ("9" * 5_000, "9" * 5_000),
        ('"""Tea"""', '"Tea"'),
        ("TRUE", True),
        ("False", False),
        ("yes", "yes"),
    ],
)
def test_a_cell_that_would_not_print_back_as_it_was_stays_text(cell: str, value: object) -> None:
    [row] = documents_of("csv", f"text,part\nTea,{cell}\n")
    assert (row.metadata["part"], type(row.metadata["part"])) == (value, type(value))


UNCLOSED = "line: is not CSV: a quote begins here and is not closed, so nothing behind it is read"


@pytest.mark.parametrize(
    ("table", "ids", "failure"),
    [
        ('id,text\na,Tea\nb,"Coffee\nc,Milk\nd,Water\n', ["a"], (Place(3), UNCLOSED)),
        ('id,text\na,Tea\nb,"Coffee\nc,"Milk"\nd,Water\n', ["a"], (Place(3), UNCLOSED)),
        ('id,text\na,Tea\nb,"Coffee', ["a"], (Place(3), UNCLOSED)),
        ('id,"text\na,Tea\n', [], (Place(1), UNCLOSED)),
        ('id,text\na,"Tea" "x\nb,Coffee\n', ["b"], (Place(2), "line: is not CSV: ',' expected after '\"'")),
    ],
)
def test_a_quote_that_is_not_closed_fails_with_its_line(table: str, ids: list[str], failure: tuple[Place, str]) -> None:
    assert [each.doc_id for each in documents_of("csv", table)] == [f"given/{each}" for each in ids]
    assert failures_of("csv", table) == [failure]


def test_a_row_without_a_text_or_an_id_is_all_of_its_cells_under_a_digest() -> None:
    [ada, bo] = documents_of("csv", "Name;Город\nAda;Bern\nBo;Wien")
    assert (ada.content, bo.metadata) == (
        "Name: Ada\nГород: Bern",
        {"source": "given", "Name": "Bo", "field_2": "Wien"},
    )
    [again, other] = documents_of("csv", "Name;Город\nAda;Bern\nBo;Graz")
    assert again.doc_id == ada.doc_id and other.doc_id != bo.doc_id


def test_rows_and_columns_that_share_a_name_keep_all_of_their_values() -> None:
    table = "key,text,tel,tel,,Price (EUR),Price/EUR\na,Tea,1,2,3,4,5\na,Coffee,,,,,\na,Tea,1,2,3,4,5\n"
    tea, coffee, again = documents_of("csv", table)
    assert tea.metadata == {
        "source": "given",
        "tel": 1,
        "tel_4": 2,
        "column_5": 3,
        "Price_EUR": 4,
        "_5_Price_EUR": 5,
    }
    assert (tea.doc_id, again.doc_id, coffee.content) == ("given/a", "given/a", "Coffee")
    assert coffee.doc_id.startswith("given/a/")


def test_each_json_object_becomes_a_document() -> None:
    lines: list[dict[str, Any]] = [
        {"id": 1, "text": "Tea", "tags": ["a", "b"], "deep": {"n": [1]}, "none": None, "data": [{"id": 2}]},
        {"id": "b", "body": "Coffee", "metadata": {"n": 2**70}},
        {"id": "c", "text": ""},
    ]
    tea, coffee, rest = documents_of("jsonl", "\n".join(map(json.dumps, lines)))
    assert (tea.doc_id, tea.content) == ("given/1", "Tea")
    assert tea.metadata == {"source": "given", "tags": ["a", "b"], "deep": '{"n": [1]}', "data": '[{"id": 2}]'}
    assert coffee.metadata == {"source": "given", "n": str(2**70)}
    assert rest.content == "id: c\ntext: "
    assert failures_of("jsonl", '[{"text": "a"},\n5]') == [(Place(2, 2), "record: must be an object, not '5'")]


def test_an_episode_of_graphiti_becomes_a_document() -> None:
    record = {"uuid": "e1", "content": "Ada: I moved.", "source": "message", "valid_at": "2026-01-31T12:00:00Z"}
    [episode] = documents_of("graphiti", json.dumps({"episodes": [record]}))
    assert (episode.doc_id, episode.content) == ("graphiti/e1", "Ada: I moved.")
    assert episode.metadata == {"source": "message", "time": datetime(2026, 1, 31, 12, tzinfo=UTC)}


MAILS = b"""From ada@example.org Sat Jan 31 12:00:00 2026
From: =?utf-8?q?Ad=C3=A0?= <ada@example.org>
To: bo@example.org
Subject: Tea
Message-ID: <m1@example.org>
Date: Sat, 31 Jan 2026 12:00:00 +0100
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/html; charset=utf-8

<p>Green <b>tea</b>.</p><style>p {}</style>
--b
Content-Type: image/png
Content-Disposition: attachment; filename="a.png"

x
--b--

From bo@example.org Sat Jan 31 13:00:00 2026
Subject: Re: Tea
Content-Type: text/plain; charset=unheard-of

>From now on, black.
"""


def test_each_mail_becomes_a_document() -> None:
    first, second = documents_of("mbox", MAILS)
    assert (first.doc_id, first.content) == ("mail/m1@example.org", "Tea\n\nGreen tea.")
    assert first.metadata == {
        "source": "given",
        "subject": "Tea",
        "from": "Adà <ada@example.org>",
        "to": "bo@example.org",
        "date": "2026-01-31",
        "time": datetime(2026, 1, 31, 11, tzinfo=UTC),
    }
    assert second.content == "Re: Tea\n\nFrom now on, black."
    assert [each for each in read("mbox", MAILS) if isinstance(each, LeftOut)] == [LeftOut(Place(1), "attachments", 1)]


ONE_MAIL = b"""From: =?utf-8?q?Ad=C3=A0?= <ada@example.org>
Subject: =?utf-8?q?Caf=C3=A9?=
Date: Sat, 31 Jan 2026 12:00:00 +0100
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

It is closed. D=E9sol=E9e!
"""


def test_a_file_with_one_mail_is_read_as_text_by_imports_and_as_a_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "tea.eml").write_bytes(ONE_MAIL)
    [imported] = documents_of("mbox", ONE_MAIL)
    [indexed] = read_inputs([Input(str(tmp_path / "tea.eml"), "tea.eml")], SourceOptions())
    for document in (imported, indexed):
        assert isinstance(document, Document)
        assert document.content == "Café\n\nIt is closed. Désolée!"
        assert document.metadata["from"] == "Adà <ada@example.org>"
        assert (document.metadata["subject"], document.metadata["date"]) == ("Café", "2026-01-31")


def test_the_date_of_a_mail_is_that_of_the_clock_of_its_sender() -> None:
    mail = "From a@example.org Sat Mar 14 23:30:00 2026\nDate: Sat, 14 Mar 2026 23:30:00 -0800\n\nGreen.\n"
    [found] = documents_of("mbox", mail)
    assert found.metadata["date"] == "2026-03-14"
    assert found.metadata["time"] == datetime(2026, 3, 15, 7, 30, tzinfo=UTC)


def test_a_line_of_a_mail_that_begins_with_from_does_not_end_it() -> None:
    said = "From now on, black.\n\nFrom the docs\nhttps://example.org\n\nFrom Monday to Friday\n"
    mails = f"From a@example.org Sat Jan 31 12:00:00 2026\nSubject: Tea\n\nGreen.\n\n{said}\n"
    following = "From - Sat, 31 Jan 2026 12:00:00\nSubject: Two\n\nb\n\nFrom c@example.org\nSubject: Three\n\nc\n"
    assert [each.content for each in documents_of("mbox", mails + following)] == [
        f"Tea\n\nGreen.\n\n{said.rstrip()}",
        "Two\n\nb",
        "Three\n\nc",
    ]


PAGE = """<!DOCTYPE html><html><head><title>Tea &amp;
 more</title><style>p { color: red }</style></head>
<body><h1>Green   tea</h1><p>It is <b>ver</b>y good.<br>Hot.</p><ul><li>sencha<li>matcha</ul>
<table><tr><td>a</td><td>b</td></tr></table><pre>if x:
    y()</pre><script>alert("no")</script></body></html>"""


def test_a_page_is_read_without_tags() -> None:
    [page] = documents_of("html", PAGE)
    assert (page.doc_id, page.metadata) == ("given", {"source": "given", "title": "Tea & more"})
    assert page.content == "Green tea\n\nIt is very good.\nHot.\n\nsencha\nmatcha\n\na b\n\nif x:\n    y()"


def test_front_matter_is_metadata() -> None:
    text = "---\ntitle: Tea\ntags: [green, 5]\ndate: 2026-01-31\ndraft: false\nnone:\n---\n\n# Tea\n---\nGood."
    [page] = documents_of("markdown", text)
    assert page.content == "# Tea\n---\nGood."
    assert page.metadata == {
        "source": "given",
        "title": "Tea",
        "tags": ["green", "5"],
        "date": datetime(2026, 1, 31, tzinfo=UTC),
        "draft": False,
    }


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("created: 2024-02-30", "2024-02-30"),
        ("date: {{date}}", "{{date}}"),
        ("title: broken: yaml: here", "broken: yaml: here"),
        ("title: [Draft] Tea", "[Draft] Tea"),
        ("title: [Draft]", "[Draft]"),
        ("title: 2024-01-31", "2024-01-31"),
        ("title: no", "no"),
        ("tags: @work", "@work"),
        ("again: *tea", "*tea"),
        ("open: [1,\n  2", "[1,\n  2"),
        ("title: 12:30", "12:30"),
        ("time: 12:30", "12:30"),
        ("zip: 01234", "01234"),
        ("answer: no", "no"),
        ("version: 1.10", "1.10"),
        ("mask: 0x1F", "0x1F"),
        ("thousand: 1_000", "1_000"),
        ("quoted: '5'", "5"),
        ("versions: [1.10, yes, true, 007]", ["1.10", "yes", "true", "007"]),
        ("ready: True", True),
        ("score: -4.5", -4.5),
        ("day: 2024-01-31", datetime(2024, 1, 31, tzinfo=UTC)),
    ],
)
def test_an_odd_value_of_front_matter_is_text_and_the_others_are_kept(line: str, value: object) -> None:
    name = line.partition(":")[0]
    text = f"---\nkind: tea\n{line}\n\n# a comment: [\n'og:list':\n- a\ncups: 2\n---\nGreen."
    [page] = documents_of("markdown", text)
    expected = {"source": "given", "kind": "tea", name: value, "og_list": ["a"], "cups": 2}
    assert (page.content, page.metadata) == ("Green.", expected)
    assert type(page.metadata[name]) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "---\n[No\n---\nTea",
        "---\n- a\nb: [\n---\nTea",
        "---\n}\n---\nTea",
        "---\njust a line\n---\n",
        "---\nBut: [a\nline of prose\n---\nTea",
    ],
)
def test_front_matter_that_is_none_stays_in_the_text(text: str) -> None:
    assert [(each.content, each.metadata) for each in documents_of("markdown", text)] == [(text, {"source": "given"})]


def test_pages_and_front_matter_are_indexed_alike(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "b.md").write_text("---\ntopic: tea\nsource: x\n---\nGreen tea.", encoding="utf-8")
    (tmp_path / "c.txt").write_text("<p>Tea</p>", encoding="utf-8")
    inputs = [Input(str(path), path.name) for path in sorted(tmp_path.iterdir())]
    page, note, text = (each for each in read_inputs(inputs, SourceOptions()) if isinstance(each, Document))
    assert page.content.startswith("Green tea\n\nIt is very good.") and page.metadata["title"] == "Tea & more"
    assert (note.content, note.metadata["topic"], note.metadata["file_name"]) == ("Green tea.", "tea", "b.md")
    assert note.metadata["source"] == (tmp_path / "b.md").as_posix()
    assert text.content == "<p>Tea</p>"
