"""Files, folders and JSON lines become documents. Anything else is named with its reason."""

import json
import os
from pathlib import Path

import pytest
from mnemon import Document, Scope
from mnemon._cli.documents.sources import Skipped, Source, SourceOptions, Unreadable, find_inputs, read_inputs


def read(*paths: Path | str, options: SourceOptions | None = None) -> list[Source]:
    chosen = options or SourceOptions()
    return list(read_inputs(find_inputs([str(path) for path in paths], chosen), chosen))


def ids(sources: list[Source]) -> list[str]:
    return [source.doc_id for source in sources if isinstance(source, Document)]


def test_a_folder_is_walked_and_ids_are_paths_inside_it(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "two.md").write_text("two", encoding="utf-8")
    (tmp_path / "one.txt").write_text("one", encoding="utf-8")

    sources = read(tmp_path)

    assert ids(sources) == ["one.txt", "b/c/two.md"]
    assert sources[1] == Document(
        "b/c/two.md",
        "two",
        {
            "source": (tmp_path / "b/c/two.md").as_posix(),
            "file_name": "two.md",
            "suffix": ".md",
            "source_folder": tmp_path.as_posix(),
            "path_in_folder": "b/c/two.md",
        },
    )


def test_the_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")

    [document] = read(tmp_path / "a.txt")

    assert isinstance(document, Document)
    assert (document.doc_id, document.content) == ("a.txt", "café")


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_files_in_utf_16_with_a_byte_order_mark_are_read(tmp_path: Path, order: str) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffcafé\n".encode(order))
    lines = '\ufeff{"doc_id": "1", "content": "thé"}\r\n\r\n{"doc_id": "2", "content": "Ċ 茶"}\r\n'
    (tmp_path / "b.jsonl").write_bytes(lines.encode(order))

    found = [(each.doc_id, each.content) for each in read(tmp_path) if isinstance(each, Document)]

    assert found == [("a.txt", "café\n"), ("1", "thé"), ("2", "Ċ 茶")]


def test_files_that_are_not_text_are_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a-zero").write_bytes(b"text\0more")
    (tmp_path / "b-latin").write_bytes(b"caf\xe9")
    (tmp_path / "c-blank").write_text(" \n", encoding="utf-8")
    (tmp_path / "d-image").write_bytes(bytes(2 << 20))
    os.mkfifo(tmp_path / "e-pipe")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".env").write_text("x", encoding="utf-8")

    sources = read(tmp_path)

    assert [(Path(s.path).name, s.reason) for s in sources if isinstance(s, Skipped)] == [
        (".git", "hidden"),
        (".env", "hidden"),
        ("a-zero", "not UTF-8 text"),
        ("b-latin", "not UTF-8 text"),
        ("c-blank", "blank"),
        ("d-image", "not UTF-8 text"),
        ("e-pipe", "not a file"),
    ]
    assert len(sources) == 7


def test_symbolic_links_to_folders_are_skipped_and_named_and_those_to_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "a.txt").write_text("text", encoding="utf-8")
    for name in ("away", ".hidden"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "away")
    (tmp_path / "root" / "file.txt").symlink_to(tmp_path / "away" / "a.txt")

    hidden, linked, document = read(tmp_path / "root")

    assert hidden == Skipped(str(tmp_path / "root" / ".hidden"), "hidden")
    assert linked == Skipped(str(tmp_path / "root" / "away"), "a symbolic link to a folder")
    assert ids([document]) == ["file.txt"]


def test_a_text_too_long_for_one_document_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("x" * ((1 << 20) + 1), encoding="utf-8")

    [source] = read(tmp_path)

    assert isinstance(source, Unreadable)
    assert "1,048,576" in source.problem


def test_globs_select_among_the_files_of_folders(tmp_path: Path) -> None:
    for name in ("a.md", "b.txt", "sub/c.md", "sub/d.rst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")

    assert ids(read(tmp_path, options=SourceOptions(globs=("*.md", "sub/*.rst")))) == ["a.md", "sub/c.md", "sub/d.rst"]


def ignoring(folder: Path, *lines: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("\n".join(lines), encoding="utf-8")


def test_what_git_ignores_is_skipped_and_named(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (tmp_path / ".git").mkdir()
    ignoring(tmp_path, "*.log", "!", "/docs/private/", "build")
    ignoring(docs / "sub", "# what the logs of this folder are for", "!keep.log", "/only-here.md")
    for name in (
        "a.md",
        "b.log",
        "private/c.md",
        "build/d.md",
        "sub/keep.log",
        "sub/only-here.md",
        "sub/x/only-here.md",
    ):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(name, encoding="utf-8")

    sources = read(docs)

    assert ids(sources) == ["a.md", "sub/keep.log", "sub/x/only-here.md"]
    skipped = [source for source in sources if isinstance(source, Skipped) and source.reason == "in .gitignore"]
    assert [Path(each.path).relative_to(docs).as_posix() for each in skipped] == [
        "build",
        "private",
        "b.log",
        "sub/only-here.md",
    ]
    assert len(ids(read(docs, options=SourceOptions(gitignore=False)))) == 7
    assert ids(read(docs / "private")) == ["c.md"]  # asked for by name
    assert ids(read(docs / "b.log")) == ["b.log"]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (("*", "!*/", "!*.md"), ["a/b/d.md", "a/c.md", "e.md"]),
        (("/a/*", "!/a/b"), ["a/b/d.md", "a/b/f.py", "e.md", "g.py"]),
        (("/a/*", "!/a/b/", "f.py"), ["a/b/d.md", "e.md", "g.py"]),
        (("a/", "!a/c.md"), ["e.md", "g.py"]),
        (("\ufeffa/\r", "*.py\r"), ["e.md"]),  # as some editors write it
        (("**/b/**", "*.py", "!g.py"), ["a/c.md", "e.md", "g.py"]),
    ],
)
def test_what_git_takes_in_again_is_read(tmp_path: Path, lines: tuple[str, ...], left: list[str]) -> None:
    ignoring(tmp_path, *lines)
    for name in ("a/b/d.md", "a/b/f.py", "a/c.md", "e.md", "g.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")

    assert sorted(ids(read(tmp_path))) == left


def test_ids_begin_with_the_path_if_several_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "readme").write_text(folder, encoding="utf-8")
    (tmp_path / "readme").write_text("root", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert ids(read("./x/", "y", "readme")) == ["x/readme", "y/readme", "readme"]
    assert ids(read("x")) == ["readme"]
    assert ids(read("y", options=SourceOptions(id_prefix="y/"))) == ["y/readme"]


def test_a_file_given_twice_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "readme").write_text("text", encoding="utf-8")

    sources = read(tmp_path, tmp_path / "readme")

    assert [type(source) for source in sources] == [Document, Skipped]
    assert sources[1] == Skipped(str(tmp_path / "readme"), "given twice")


def test_json_lines_hold_one_document_each_and_a_bad_line_fails_alone(tmp_path: Path) -> None:
    lines = [
        json.dumps({"doc_id": "a", "content": "one", "metadata": {"year": 2024}, "scope": {"user": "ada"}}),
        "",
        "{not json",
        json.dumps({"id": "b", "text": "two"}),
        json.dumps({"id": 5, "text": "three"}),
        json.dumps({"id": "c"}),
        json.dumps(["d", "four"]),
    ]
    (tmp_path / "l.jsonl").write_text("\n".join(lines), encoding="utf-8")

    sources = read(tmp_path, options=SourceOptions(metadata={"team": "x"}))

    assert [source for source in sources if isinstance(source, Document)] == [
        Document("a", "one", {"year": 2024, "team": "x"}, Scope(user="ada")),
        Document("b", "two", {"team": "x"}),
    ]
    problems = [source for source in sources if isinstance(source, Unreadable)]
    assert [Path(problem.path).name for problem in problems] == ["l.jsonl:3", "l.jsonl:5", "l.jsonl:6", "l.jsonl:7"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            '{"id": "a", "text": "one", "meta": {"year": 2024}}',
            '"meta" is not a field; the fields are doc_id, id',
        ),
        ('{"id": "a", "text": "one", "text": "two"}', "the key 'text' appears twice"),
        ('{"id": "a", "text": "one", "metadata": {"n": 1, "n": 2}}', "the key 'n' appears twice"),
    ],
)
def test_a_line_with_a_value_that_would_be_lost_is_refused(tmp_path: Path, line: str, problem: str) -> None:
    (tmp_path / "l.jsonl").write_text(line, encoding="utf-8")

    [source] = read(tmp_path)

    assert isinstance(source, Unreadable)
    assert problem in source.problem


def test_a_printed_document_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text(json.dumps(Document("a", "one", revision=3).to_dict()), encoding="utf-8")

    assert list(read(tmp_path)) == [Document("a", "one")]


def test_a_null_in_a_line_is_a_field_that_is_not_set(tmp_path: Path) -> None:
    line = {"doc_id": None, "id": "a", "content": None, "text": "one", "scope": {"user": None}, "metadata": {"n": None}}
    (tmp_path / "l.jsonl").write_text(json.dumps(line), encoding="utf-8")

    assert list(read(tmp_path)) == [Document("a", "one", {})]


def test_a_file_that_cannot_be_opened_is_an_error_with_its_reason(tmp_path: Path) -> None:
    [source] = read(tmp_path / "gone.txt")

    assert source == Unreadable(str(tmp_path / "gone.txt"), "No such file or directory")


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_json_lines_can_be_requested_whatever_the_file_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"id": "a", "text": "one"}', encoding="utf-8")

    assert ids(read(tmp_path / name, options=SourceOptions(json_lines=True))) == ["a"]
