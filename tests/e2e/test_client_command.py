"""The mnemon command against a real server, used as people and programs use it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client, HealthStatus, Scope, __version__
from mnemon._cli.app import mnemon

from tests.support.command import run, run_json
from tests.support.server import START_S, server_process, wait_until


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data")) as running:
        with Client(running.address()) as client:
            wait_until(lambda: client.documents.status().status == HealthStatus.HEALTHY, START_S)
        yield running.address()


@pytest.fixture
def memory(address: str) -> Iterator[Client]:
    """A client of an empty store."""
    with Client(address) as client:
        for document in client.documents.list(view="ids"):
            client.documents.delete(document.doc_id)
        for found in client.memories.list():
            client.memories.delete(found.memory_id)
        yield client


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of text files with other files among them."""
    folder = tmp_path / "notes"
    (folder / "viaggi").mkdir(parents=True)
    (folder / "ada.txt").write_text("Ada prefers window seats on long flights.", encoding="utf-8")
    (folder / "viaggi" / "città.md").write_text("Il treno per Torino parte alle nove. 🚆", encoding="utf-8")
    (folder / "report.md").write_text("The quarterly report is due on Friday.", encoding="utf-8")
    (folder / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF")
    return folder


def test_a_folder_is_indexed_and_found(address: str, memory: Client, notes: Path) -> None:
    indexed = run(address, "index", notes, "--meta", "year=2024", "--project", "diary")
    found = run(address, "search", "window seats on flights", "--filter", "year=2024", "--project", "diary")

    assert (indexed.returncode, indexed.stderr) == (1, "")  # a photo is not a text, and scripts should notice
    assert indexed.stdout == "3 created, 0 replaced, 0 unchanged, 0 failed; 1 skipped (1 not UTF-8 text)\n"
    assert found.returncode == 0
    rows = [line for line in found.stdout.splitlines() if ".txt" in line or ".md" in line]
    assert "ada.txt" in rows[0]
    assert "Ada prefers window seats" in rows[0]
    document = memory.documents.get("viaggi/città.md")
    assert document.content.endswith("🚆")
    assert document.scope == Scope(project="diary")
    assert document.metadata == {
        "year": 2024,
        "source": (notes / "viaggi/città.md").as_posix(),
        "file_name": "città.md",
        "suffix": ".md",
        "source_folder": notes.as_posix(),
        "path_in_folder": "viaggi/città.md",
    }


def test_files_that_are_not_text_are_skipped_on_request(address: str, memory: Client, notes: Path) -> None:
    assert run(address, "index", notes, "--allow-skipped").returncode == 0
    assert run(address, "index", notes, "--glob", "*.md").returncode == 0


def test_a_limit_below_one_is_refused(address: str) -> None:
    for command in (("search", "tea", "--top-k"), ("similar", "tea", "-k"), ("facts", "search", "tea", "--limit")):
        refused = run(address, *command, "0")
        assert refused.returncode == 2
        assert "0 is not in the range 1<=x<=" in refused.stderr


def test_a_limit_has_the_same_names_everywhere(address: str, memory: Client) -> None:
    for number in range(2):
        memory.documents.put(f"note-{number}", f"Note {number} is about tea.")
        memory.remember(f"Note {number} is about coffee.")

    for command in (["search", "note"], ["list"], ["recall", "note"], ["memories"]):
        for name in ("--limit", "--top-k", "-k", "-n"):
            lines = run_json(address, *command, name, "1")
            assert sum(len(line.get("results", [line])) for line in lines) == 1
        differ = run(address, *command, "--limit", "1", "--top-k", "2")
        assert (differ.returncode, "one number is meant, not 1 and 2" in differ.stderr) == (2, True)


def test_the_help_shows_the_commands_by_kind_and_what_each_kind_is_for() -> None:
    shown = run("127.0.0.1:1", "--help").stdout

    assert "Documents: texts and files under ids of your own:\n  index " in shown
    headings = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert len(headings) == 10  # the options, and nine kinds
    assert all(re.search(rf"^  {name} +[A-Z]", shown, re.M) for name in mnemon.commands)


@pytest.mark.parametrize("command", ["mnemon", "mnemon_server"])
def test_a_checkout_knows_its_version(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", command, "--version"], capture_output=True, text=True, check=True)

    assert done.stdout.strip().endswith(f"version {__version__}")


def test_an_empty_list_says_so(address: str, memory: Client) -> None:
    lists = {("list",): "no documents", ("memories",): "no memories", ("known",): "nothing is known"}
    for command, said in {**lists, ("facts", "list"): "no facts"}.items():
        assert run(address, *command).stdout == f"{said}\n"


def test_a_pipe_gets_each_row_on_one_line_whatever_its_length(
    address: str, memory: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # it would set a width explicitly
    doc_id = "a-long-folder-name/" * 20 + "note.txt"
    memory.documents.put(doc_id, "words " * 60)
    rows = [line for line in run(address, "list").stdout.splitlines() if doc_id in line]
    assert len(rows) == 1
    assert "words words" in rows[0]


def test_indexing_again_reports_what_changed(address: str, memory: Client, notes: Path) -> None:
    run(address, "index", notes)
    (notes / "ada.txt").write_text("Ada now prefers the aisle.", encoding="utf-8")

    again = run(address, "index", notes)

    assert again.stdout.startswith("0 created, 1 replaced, 2 unchanged, 0 failed")


def test_documents_of_files_that_are_gone_are_named_and_pruned(
    address: str, memory: Client, notes: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / "ada.txt").write_text("Ada again.", encoding="utf-8")
    (notes / "photo.jpg").unlink()
    run(address, "index", notes)
    run(address, "index", other, "--id-prefix", "other/")
    memory.documents.put("by-hand", "Not from a folder.", {"source": (notes / "ada.txt").as_posix()})
    (notes / "ada.txt").unlink()
    (notes / "report.md").write_bytes(b"\xff\xfe")  # no text any more
    (other / "sub" / "ada.txt").rename(other / "ada.txt")

    again = run(address, "index", notes, "--allow-skipped")
    assert again.returncode == 0
    assert again.stderr == "gone: ada.txt\ngone: report.md\n"
    assert "; 2 gone, which --prune removes" in again.stdout
    assert "gone: " not in run(address, "index", notes, "--glob", "*.rst").stderr  # no business of this glob
    assert memory.documents.count() == 5

    assert "; 2 pruned" in run(address, "index", notes, "--allow-skipped", "--prune").stdout
    left = {document.doc_id for document in memory.documents.list(view="ids")}
    assert left == {"by-hand", "other/sub/ada.txt", "viaggi/città.md"}


def test_nothing_is_pruned_of_a_folder_that_cannot_be_read(address: str, memory: Client, notes: Path) -> None:
    run(address, "index", notes)
    moved = notes.rename(notes.with_name("moved"))
    notes.mkdir()  # as a disk that is not mounted looks

    done = run(address, "index", notes, "--prune")
    assert done.returncode == 1
    assert f"{notes}: no text was found in it, so that nothing was removed" in done.stderr

    notes.rmdir()
    moved.rename(notes)
    (notes / "ada.txt").unlink()
    (notes / "long.txt").write_text("x" * ((1 << 20) + 1), encoding="utf-8")
    done = run(address, "index", notes, "--prune")
    assert f"{notes}: {notes}/long.txt could not be read, so that nothing was removed" in done.stderr
    assert memory.documents.count() == 3


@pytest.mark.parametrize("way_out", ["--glob", ".gitignore"])
def test_json_lines_without_documents_stop_pruning_until_they_are_left_out(
    address: str, memory: Client, notes: Path, way_out: str
) -> None:
    (notes / "log.jsonl").write_text('{"level": "info"}\n{"level": "error"}\n', encoding="utf-8")
    run(address, "index", notes)
    (notes / "ada.txt").unlink()

    stopped = run(address, "index", notes, "--prune")
    assert stopped.stderr.splitlines()[-1] == (
        f"{notes}: {notes}/log.jsonl:1 could not be read, so that nothing was removed;"
        " leave out a file that holds no documents with --glob or .gitignore"
    )

    (notes / ".gitignore").write_text("*.jsonl" if way_out == ".gitignore" else "", encoding="utf-8")
    globs = ("--glob", "*.md", "--glob", "*.txt") if way_out == "--glob" else ()
    assert "; 1 pruned" in run(address, "index", notes, *globs, "--prune").stdout


@pytest.mark.parametrize(
    ("first", "second", "owner"),
    [
        (("w1", "--project", "P"), ("w2", "--project", "Q"), "a document of project P"),
        (("w1",), ("w1", "--user", "ada"), "a document of no user, project or other scope"),
        (("w1",), ("w2",), "a document from {}/w1"),
        (("w1/NOTES.md",), ("w2/NOTES.md",), "a document from {}/w1"),
        (("w1",), ("w2/NOTES.md",), "a document from {}/w1"),
        (("w1/lines.jsonl", "--user", "ada"), ("w1/lines.jsonl", "--user", "bob"), "a document of user ada"),
    ],
)
def test_a_document_of_another_scope_or_folder_is_replaced_only_on_request(
    address: str,
    memory: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[str, ...],
    second: tuple[str, ...],
    owner: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("w1", "w2"):
        Path(folder).mkdir()
        Path(folder, "NOTES.md").write_text(f"The notes of {folder}.", encoding="utf-8")
    Path("w1", "lines.jsonl").write_text('{"id": "NOTES.md", "text": "A line."}', encoding="utf-8")
    globs = ("--glob", "*.md")
    run(address, "index", *first, *globs)
    before = memory.documents.get("NOTES.md")
    Path("w2", "own.md").write_text("A file of its own.", encoding="utf-8")

    refused = run(address, "index", *second, *globs, "--prune")

    assert refused.returncode == 1
    assert f"failed: NOTES.md: {owner.format(tmp_path)} has this id; --id-prefix stores" in refused.stderr
    assert ", 1 failed" in refused.stdout
    assert memory.documents.get("NOTES.md") == before
    assert run(address, "index", *first, *globs, "--prune").stdout.startswith("0 created, 0 replaced, 1 unchanged, 0 f")
    assert ", 0 replaced, 0 unchanged, 0 failed" in run(address, "index", *second, *globs, "--id-prefix", "2/").stdout
    assert ", 1 replaced, " in run(address, "index", *second, *globs, "--take-over").stdout
    assert memory.documents.get("NOTES.md") != before


def test_a_file_of_the_same_scope_is_replaced_however_it_is_given(
    address: str, memory: Client, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = notes / "viaggi" / "città.md"
    memory.documents.put("viaggi/città.md", "Of an earlier version.", {"source": file.as_posix()}, scope=Scope("ada"))
    monkeypatch.chdir(notes)
    ways = [(notes,), (".",), ("viaggi/città.md", "ada.txt"), (f"{notes}/",)]
    for number, paths in enumerate(ways):
        file.write_text(f"Version {number}.", encoding="utf-8")
        done = run(address, "index", *paths, "--user", "ada", "--allow-skipped")
        assert (done.returncode, ", 0 failed" in done.stdout) == (0, True), done.stderr
        assert memory.documents.get("viaggi/città.md").content == f"Version {number}."


def test_ids_that_cannot_be_stored_fail_alone(address: str, memory: Client, tmp_path: Path) -> None:
    ids = ["ok", "", "a\0b", "\ud800", "x" * 600, "y" * 2000]
    lines = "\n".join(json.dumps({"id": doc_id, "text": "A line."}) for doc_id in ids)
    (tmp_path / "l.jsonl").write_text(lines, encoding="utf-8")

    assert run(address, "index", tmp_path / "l.jsonl").stdout.startswith("1 created, 0 replaced, 0 unchanged, 5 failed")


def test_globs_and_a_prefix_select_files_and_name_documents(address: str, memory: Client, notes: Path) -> None:
    lines = run_json(address, "index", notes, "--glob", "*.md", "--id-prefix", "it/")

    assert [line["doc_id"] for line in lines[:-1]] == ["it/report.md", "it/viaggi/città.md"]
    counts = {"created": 2, "replaced": 0, "unchanged": 0, "failed": 0, "gone": 0, "pruned": 0}
    assert lines[-1] == {"summary": {**counts, "skipped": {}}}


def test_a_failure_is_named_and_sets_the_exit_code(address: str, memory: Client, tmp_path: Path) -> None:
    lines = ['{"id": "a", "text": "one"}', "{broken", '{"id": "b", "text": "two", "metadata": {"k": {}}}']
    (tmp_path / "l.jsonl").write_text("\n".join(lines), encoding="utf-8")

    done = run(address, "index", tmp_path / "l.jsonl")

    assert done.returncode == 1
    assert done.stdout.startswith("1 created, 0 replaced, 0 unchanged, 2 failed")
    assert "l.jsonl:2: not JSON" in done.stderr
    assert "failed: b: metadata.k: must be" in done.stderr
    assert memory.documents.count() == 1


def test_standard_input_is_a_text_or_json_lines(address: str, memory: Client) -> None:
    run(address, "index", "-", "--id-prefix", "from-", "--id", "pipe", stdin="A piped text. é")
    run(address, "index", "-", "--jsonl", stdin='{"id": "line", "text": "A line."}\n')

    assert memory.documents.get("from-pipe").content == "A piped text. é"
    assert memory.documents.get("line").content == "A line."


def test_two_texts_of_standard_input_are_two_documents(address: str, memory: Client) -> None:
    first, again, second = (run(address, "index", "-", stdin=text) for text in ("one", "one", "two"))

    assert (first.stdout, again.stdout, second.stdout) == tuple(
        f"{counts}, 0 failed\n"
        for counts in (
            "1 created, 0 replaced, 0 unchanged",
            "0 created, 0 replaced, 1 unchanged",
            "1 created, 0 replaced, 0 unchanged",
        )
    )
    named = first.stderr.removeprefix("note: standard input is the document ").strip()
    assert memory.documents.get(named).content == "one"
    assert run(address, "index", "-", "--jsonl", "--id", "a", stdin="{}").returncode == 2


def test_the_json_output_of_list_can_be_indexed_again(
    address: str, memory: Client, notes: Path, tmp_path: Path
) -> None:
    run(address, "index", notes, "--user", "ada", "--meta", 'code="007"')
    listed = run(address, "list", "--json")
    before = {document.doc_id: document for document in memory.documents.list()}
    run(address, "delete", "--user", "ada", "--yes")
    (tmp_path / "backup.jsonl").write_text(listed.stdout, encoding="utf-8")

    done = run(address, "index", tmp_path / "backup.jsonl")

    assert done.returncode == 0, done.stderr
    after = {document.doc_id: document for document in memory.documents.list()}
    assert len(after) == 3
    assert {(d.doc_id, d.content, d.scope) for d in after.values()} == {
        (d.doc_id, d.content, d.scope) for d in before.values()
    }
    assert after["ada.txt"].metadata == before["ada.txt"].metadata
    assert after["ada.txt"].metadata["code"] == "007"


def test_json_holds_the_whole_answer_without_colours(address: str, memory: Client, notes: Path) -> None:
    run(address, "index", notes)

    [answer] = run_json(address, "search", "quarterly report", "--filter", "nobody=1", "--lenient", "--mode", "keyword")
    [document] = run_json(address, "get", "report.md")
    [counted] = run_json(address, "count")
    [health] = run_json(address, "health")

    assert answer["results"][0]["doc_id"] == "report.md"
    assert answer["results"][0]["metadata"]["suffix"] == ".md"
    assert answer["ignored_filters"][0]["key"] == "nobody"
    assert answer["diagnostics"]["mode"] == "keyword"
    assert document["content"] == "The quarterly report is due on Friday."
    assert counted == {"count": 3}
    assert (health["status"], health["document_count"]) == ("healthy", 3)


def test_a_terminal_gets_tables(address: str, memory: Client, notes: Path) -> None:
    run(address, "index", notes)

    assert "Il treno per Torino parte alle nove. 🚆" in run(address, "get", "viaggi/città.md").stdout
    assert run(address, "count", "--filter", "suffix=.md").stdout == "2\n"
    assert "healthy" in run(address, "health").stdout
    listed = run(address, "list", "--limit", "2")
    assert "ada.txt" in listed.stdout
    assert "viaggi" not in listed.stdout
    assert "there are more than 2;" in listed.stderr
    rebuilt = run(address, "rebuild-index")
    assert (rebuilt.returncode, "the backend local has no vector index to rebuild" in rebuilt.stderr) == (1, True)


def test_a_filter_that_no_document_can_match_is_an_error_that_names_it(
    address: str, memory: Client, notes: Path
) -> None:
    run(address, "index", notes)

    for command in (["search", "report"], ["list"], ["count"], ["delete", "--yes"]):
        done = run(address, *command, "--filter", "nobody=1")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "Error: filters.nobody: no document has this key\n"
    assert memory.documents.count() == 3


def test_an_ignored_filter_is_noted_if_the_user_allows_it(address: str, memory: Client, notes: Path) -> None:
    run(address, "index", notes)

    for command in (["search", "report"], ["list"], ["count"]):
        done = run(address, *command, "--filter", "nobody=1", "--lenient")
        assert done.returncode == 0
        assert "note: " in done.stderr
        assert "'nobody'" in done.stderr


def test_a_document_is_changed_in_part(address: str, memory: Client, tmp_path: Path) -> None:
    memory.documents.put("note", "The old text.", {"year": 2023, "draft": True}, scope=Scope(user="ada"))

    done = run(address, "update", "note", "--set", "year=2024", "--unset", "draft", "--project", "x")
    assert (done.returncode, done.stdout) == (0, "replaced note, revision 2\n")
    (tmp_path / "new.txt").write_text("The new text. é", encoding="utf-8")
    [receipt] = run_json(address, "update", "note", "--file", tmp_path / "new.txt")
    assert (receipt["outcome"], receipt["revision"]) == ("replaced", 3)
    found = memory.documents.get("note")
    assert (found.content, found.metadata) == ("The new text. é", {"year": 2024})
    assert found.scope == Scope(user="ada", project="x")
    assert run(address, "update", "note", "--content", "The new text. é").stdout == "unchanged note, revision 3\n"


def test_a_delete_asks_first(address: str, memory: Client, notes: Path) -> None:
    run(address, "index", notes)

    refused = run(address, "delete", "ada.txt", stdin="n\n")
    assert refused.returncode == 1
    assert "Delete 1 document?" in refused.stderr
    assert memory.documents.count() == 3

    confirmed = run(address, "delete", "ada.txt", stdin="y\n")
    assert (confirmed.returncode, confirmed.stdout) == (0, "deleted ada.txt\n")
    assert run(address, "count", "--where", "metadata.suffix!=.md").stdout == "0\n"
    dry = run(address, "delete", "--where", "metadata.suffix=.md", "--dry-run")
    assert dry.stdout == "2 would be deleted\n"
    assert memory.documents.count() == 2
    done = run(address, "delete", "--filter", "suffix=.md", "--yes")
    assert done.stdout == "2 deleted\n"
    assert memory.documents.count() == 0


def test_deleting_a_missing_document_fails_and_the_others_are_deleted(
    address: str, memory: Client, notes: Path
) -> None:
    run(address, "index", notes)

    done = run(address, "delete", "nowhere", "ada.txt", "--yes")

    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert done.stdout == "deleted ada.txt\n"


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["delete"], "--filter"),
        (["update", "a"], "say what to change"),
        (["update", "a", "--content", "x", "--file", "-"], "not both"),
        (["delete", "a", "--filter", "k=1"], "not both"),
        (["search", "x", "--filter", "novalue"], "topic=travel"),
        (["search", "x", "--filter", "k=1", "--filter", "k=2"], "given twice"),
        (["search", "x", "--mode", "magic"], "hybrid"),
        (["index", "no-such-folder"], "does not exist"),
        (["--address", "10.0.0.1:50051", "count"], "--insecure"),
        (["--address", "http://127.0.0.1:50051", "count"], "host:port"),
    ],
)
def test_a_wrong_command_line_gets_the_right_usage(arguments: list[str], right: str) -> None:
    done = run("127.0.0.1:1", *arguments)

    assert done.returncode == 2
    assert right in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_server_the_command_says_where_it_looked_and_how_to_start_one(notes: Path) -> None:
    for arguments in (["count"], ["search", "x"], ["index", str(notes)], ["health"]):
        done = run("127.0.0.1:1", *arguments)

        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert line.startswith("Error: no server answers at 127.0.0.1:1 (")
        assert "`make serve` or `mnemon-server serve`" in line


def test_the_command_is_a_program_whose_output_is_utf8(address: str, memory: Client) -> None:
    memory.documents.put("città", "Il treno 🚆")

    done = subprocess.run(
        [sys.executable, "-m", "mnemon", "--address", address, "search", "treno", "--json"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=True,
        timeout=120,
    )

    assert json.loads(done.stdout.decode())["results"][0]["content"] == "Il treno 🚆"
    assert done.stderr == b""


def test_a_missing_document_gives_one_clear_line(address: str, memory: Client) -> None:
    done = run(address, "get", "nowhere")

    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert "nowhere" in line
