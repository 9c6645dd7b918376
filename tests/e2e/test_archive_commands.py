"""The commands that export and import, against real servers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client

from tests.support.command import run, run_json
from tests.support.server import server_process


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of a server with a few records, and of one to import into."""
    flags = ("--knowledge-store-backend", "local")
    with (
        server_process(tmp_path_factory.mktemp("source"), *flags) as source,
        server_process(tmp_path_factory.mktemp("target"), *flags) as target,
    ):
        with Client(source.address()) as client:
            client.documents.put("note", "Ada prefers window seats.", {"n": 5.0})
            client.remember("Ada likes green tea.", user="ada")
            client.facts.put(("user", "ada"), "home", {"content": "Ada lives in Berlin."})
            client.facts.put(("org", "acme"), "home", {"content": "Acme is in Bonn."})
        yield source.address(), target.address()


@pytest.fixture
def source(addresses: tuple[str, str]) -> str:
    return addresses[0]


@pytest.fixture
def target(addresses: tuple[str, str]) -> Iterator[str]:
    """The address of an empty server."""
    with Client(addresses[1]) as client:
        client.facts.delete_many((), subtree=True)
        for document in list(client.documents.list()):
            client.documents.delete(document.doc_id)
        for memory in client.memories.list():
            client.memories.delete(memory.memory_id)
        client.memories.purge(only_deleted=True)
        yield addresses[1]


def test_an_export_is_private_to_its_owner_and_imports_to_the_same_records(
    source: str, target: str, tmp_path: Path
) -> None:
    path = tmp_path / "vault.jsonl"
    done = run(source, "export", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "exported: 1 document, 1 memory, 2 facts\n"
    assert path.stat().st_mode & 0o777 == 0o600
    header, *records, summary = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert header["mnemon_archive"] == 1 and "summary" in summary
    assert [record["kind"] for record in records] == ["document", "memory", "fact", "fact"]
    assert list(tmp_path.iterdir()) == [path]

    assert run(target, "import", path).stdout == "4 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 0 failed\n"
    assert run(target, "import", path).stdout == "0 created, 0 replaced, 4 unchanged, 0 kept, 0 erased, 0 failed\n"
    assert run(target, "get", "note", "--json").stdout == run(source, "get", "note", "--json").stdout
    piped = run(target, "import", "-", stdin=run(source, "export", "-").stdout)
    assert piped.stdout == "0 created, 0 replaced, 4 unchanged, 0 kept, 0 erased, 0 failed\n"


def test_records_are_exported_by_kind_namespace_and_scope(source: str) -> None:
    def kinds(*options: str) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in run(source, "export", "-", *options).stdout.splitlines()]
        return [(line["kind"], line["content"]) for line in lines[1:-1]]

    assert kinds("--kind", "memory") == [("memory", "Ada likes green tea.")]
    assert kinds("--facts-namespace", "user") == [("fact", "Ada lives in Berlin.")]
    assert kinds("--facts-namespace", "user", "--exact") == []
    assert kinds("--user", "ada") == [("memory", "Ada likes green tea.")]
    assert "passages" not in run(source, "export", "-", "--no-vectors").stdout
    refused = run(source, "export", "-", "--facts-namespace", "user", "--user", "ada")
    assert refused.returncode == 1 and "facts have no scope" in refused.stderr


def test_an_export_replaces_a_file_only_when_told_to(source: str, tmp_path: Path) -> None:
    path, link = tmp_path / "vault.jsonl", tmp_path / "link.jsonl"
    path.write_text("what was there", encoding="utf-8")
    link.symlink_to(path)
    for each in (path, link):
        refused = run(source, "export", each)
        assert refused.returncode == 1 and refused.stdout == ""
        assert "it exists already and was not changed; name another file, or give --force" in refused.stderr
    failed = run("127.0.0.1:1", "export", path, "--force")
    assert failed.returncode == 1 and "no server answers" in failed.stderr
    assert path.read_text(encoding="utf-8") == "what was there"
    assert sorted(tmp_path.iterdir()) == [link, path]

    assert run(source, "export", link, "--force").returncode == 0
    assert link.is_symlink() and path.read_text(encoding="utf-8").startswith('{"mnemon_archive":1,')
    missing = run("127.0.0.1:1", "export", tmp_path / "missing" / "vault.jsonl")
    assert missing.returncode == 1 and "cannot be written: No such file" in missing.stderr


def test_an_export_to_a_pipe_is_written_to_it(source: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert run(source, "export", path).returncode == 0
        assert path.is_fifo() and os.read(reader, 100).startswith(b'{"mnemon_archive":1,')
    finally:
        os.close(reader)


def test_bad_lines_are_named_and_a_truncated_archive_is_reported(source: str, target: str, tmp_path: Path) -> None:
    lines = run(source, "export", "-").stdout.splitlines()
    record = json.loads(lines[2])
    broken = [
        lines[0],
        lines[1],
        "{",
        json.dumps({**record, "revision": -1}),
        json.dumps({**record, "id": ""}),
        lines[2],
    ]
    path = tmp_path / "broken.jsonl"
    path.write_text("\n".join(broken) + "\n", encoding="utf-8")
    done = run(target, "import", path)
    assert done.returncode == 1
    assert done.stdout == "2 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 3 failed\n"
    assert "failed: line 3: line: is not JSON" in done.stderr
    assert f"failed: line 4 (memory {record['id']}): record.revision: must be a whole number" in done.stderr
    assert "failed: line 5 (memory): record.id: must be 1 to 512 bytes" in done.stderr
    assert "the archive was cut off behind line 6" in done.stderr

    done = run(target, "import", path, "--json")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result.get("outcome") for result in results[:-1]] == ["unchanged", None, None, None, "unchanged"]
    assert results[-1]["summary"] == {
        "created": 0,
        "replaced": 0,
        "unchanged": 2,
        "kept": 0,
        "erased": 0,
        "failed": 3,
        "complete": False,
    }


def test_an_archive_of_another_model_is_refused_with_advice(source: str, target: str, tmp_path: Path) -> None:
    header, *rest = run(source, "export", "-").stdout.splitlines()
    changed = json.loads(header)
    changed["embedding_model"]["name"] = "another"
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join([json.dumps(changed), *rest]), encoding="utf-8")
    done = run(target, "import", path)
    assert done.returncode == 1 and "embed_anew" in done.stderr
    assert run(target, "import", path, "--embed-anew").returncode == 0


def test_an_export_of_another_system_becomes_facts_that_the_tools_find(target: str, tmp_path: Path) -> None:
    path = tmp_path / "mem0.json"
    results = [
        {"id": "m1", "memory": "Ada prefers window seats.", "metadata": {"category": "travel"}, "user_id": "ada"},
        {"id": "m2", "memory": "", "user_id": "ada"},
        {"id": "m3", "memory": "Bo rides a bicycle.", "user_id": "b" * 257},
    ]
    path.write_text(json.dumps({"results": results}, indent=1), encoding="utf-8")
    done = run(target, "import", path, "--from", "mem0")
    assert done.stdout == "1 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 2 failed\n"
    assert "line 11, item 2 (fact m2): memory: must be the text of the record" in done.stderr
    assert "(fact m3): fact.namespace[1]" in done.stderr and "must be at most 256 bytes" in done.stderr
    with Client(target) as client:
        found = client.tools.call("search_memory", {"query": "Where does Ada sit?"}, config={"user_id": "ada"})
        assert "window seats" in found.content

    again = run(target, "import", path, "--from", "mem0", "--namespace", "people.{id}")
    assert again.stdout == "2 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 1 failed\n"
    kept = run(target, "import", path, "--from", "mem0", "--namespace", "people.{id}", "--on-conflict", "keep")
    assert kept.stdout == "0 created, 0 replaced, 0 unchanged, 2 kept, 0 erased, 1 failed\n"


def test_what_has_ended_elsewhere_is_left_out_and_told(target: str, tmp_path: Path) -> None:
    path = tmp_path / "mem0.json"
    memories = [
        {"id": "m1", "memory": "Ada rents a flat.", "user_id": "ada", "expiration_date": "2020-01-31"},
        {"id": "m2", "memory": "Ada rides.", "user_id": "ada", "state": "deleted"},
        {"id": "m3", "memory": "Ada is away.", "user_id": "ada", "expiration_date": "2999-01-31"},
        {"id": "m4", "memory": "Ada swims.", "user_id": "ada"},
    ]
    path.write_text(json.dumps({"results": memories, "relations": [{"source": "Ada"}]}), encoding="utf-8")
    done = run(target, "import", path, "--from", "mem0")
    assert done.returncode == 0
    assert done.stdout == (
        "2 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 0 failed; left out: 1 expired, 1 deleted, 1 relations\n"
    )
    assert "--include-ended imports" in done.stderr
    *_, last = run_json(target, "import", path, "--from", "mem0", "--include-ended")
    assert (last["summary"]["created"], last["summary"]["left_out"]) == (2, {"relations": 1})


def test_a_knowledge_graph_that_is_imported_twice_is_unchanged(target: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["likes tea"]},
        {"type": "relation", "from": "Ada", "to": "Bo", "relationType": "knows"},
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["rides"]},
        {"type": "relation", "from": "Ada", "to": "Bo", "relationType": "knows"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = run(target, "import", path, "--from", "mcp-memory", "--namespace", "graph.{type}")
    assert done.stdout == "2 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 0 failed\n"
    piped = run(target, "import", "-", "--from", "mcp-memory", "--namespace", "graph.{type}", stdin=path.read_text())
    assert piped.stdout == "0 created, 0 replaced, 2 unchanged, 0 kept, 0 erased, 0 failed\n"
    with Client(target) as client:
        found = client.facts.get(("graph", "entity"), "Ada")
        assert found is not None and found.value["observations"] == ["likes tea", "rides"]


def test_a_conversation_becomes_documents_that_a_search_finds(target: str, tmp_path: Path) -> None:
    said = [
        {"uuid": "m1", "text": "When does the night train to Vienna leave?", "sender": "human"},
        {"uuid": "m2", "text": "It leaves Hamburg at eight in the evening.", "sender": "assistant"},
        {"uuid": "m3", "text": " ", "sender": "assistant"},
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"uuid": "c1", "name": "Trains", "chat_messages": said}]), encoding="utf-8")
    done = run(target, "import", path, "--user", "ada")
    told = "0 replaced, {} unchanged, 0 kept, 0 erased, 0 failed; left out: 1 without text\n"
    assert (done.returncode, done.stdout) == (0, "2 created, " + told.format(0))
    assert "conversations.json of Claude's export (--from claude)" in done.stderr
    assert run(target, "import", "-", "--user", "ada", stdin=path.read_text()).stdout == "0 created, " + told.format(2)
    [hit] = run_json(target, "search", "night train", "--limit", "1", "--user", "ada")[0]["results"]
    assert (hit["doc_id"], hit["metadata"]["title"]) == ("claude/c1/m1", "Trains")


def test_a_file_of_no_known_form_is_refused_with_the_known_ones(target: str, tmp_path: Path) -> None:
    path = tmp_path / "colours.jsonl"
    path.write_text('{"colour": "red"}\n', encoding="utf-8")
    done = run(target, "import", path)
    assert done.returncode == 1
    assert "its first record has the fields colour." in done.stderr and "chatgpt: " in done.stderr


@pytest.mark.parametrize("options", [("--namespace", "user.ada"), ("--user", "ada"), ("--json",)])
def test_an_answer_without_records_imports_nothing(target: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "answer.json"
    path.write_text('{"results": []}', encoding="utf-8")
    done = run(target, "import", path, *options)
    assert done.returncode == 0, done.stderr
    assert "0 created, " in done.stdout or json.loads(done.stdout)["summary"]["created"] == 0


def test_a_json_file_that_is_broken_fails_with_the_line_and_the_column(target: str, tmp_path: Path) -> None:
    (tmp_path / "note.csv").write_text("id,text\n7,Tea\n", encoding="utf-8")
    (tmp_path / "broken.json").write_text('{"results": [\n {"id": "a" "memory": "t"}]}', encoding="utf-8")
    done = run(target, "import", tmp_path)
    assert (done.returncode, done.stdout) == (
        1,
        "1 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 1 failed\n",
    )
    assert "broken.json: line 2 (document): line: is not JSON: column 13: Expecting ',' delimiter" in done.stderr


def test_the_files_of_a_folder_are_imported_together(target: str, tmp_path: Path) -> None:
    line = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": "Why does the test fail?"}}
    for name, uuid in (("a/one.jsonl", "u1"), ("b/two.jsonl", "u2"), (".hidden.jsonl", "u3")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps({**line, "uuid": uuid}) + "\n{\n", encoding="utf-8")
    (tmp_path / "b" / "rows.csv").write_text("id,text\n7,Tea\n", encoding="utf-8")
    (tmp_path / "b" / "plain.txt").write_text("Just a text.", encoding="utf-8")
    done = run(target, "import", tmp_path)
    assert done.returncode == 1
    assert done.stdout == (
        "3 created, 0 replaced, 0 unchanged, 0 kept, 0 erased, 2 failed; left out: 1 files of no known form\n"
    )
    assert f"failed: {tmp_path / 'a' / 'one.jsonl'}: line 2 (document): line: is not JSON" in done.stderr
    assert f"left out: {tmp_path / 'b' / 'plain.txt'}: its form is not known" in done.stderr
    done = run(target, "import", tmp_path / "b" / "rows.csv", tmp_path / "a" / "one.jsonl", "--json")
    named = [json.loads(result).get("path", "")[-9:] for result in done.stdout.splitlines()]
    assert named == ["/rows.csv", "one.jsonl", "one.jsonl", ""]
    with Client(target) as client:
        assert client.documents.get("b/rows.csv/7") is not None


def test_a_row_of_another_user_or_folder_is_replaced_only_on_request(target: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.csv").write_text(f"id,text\n1,Tea of {name}\n", encoding="utf-8")
    ada, bob = (tmp_path / "a" / "notes.csv", "--user", "ada"), (tmp_path / "b" / "notes.csv", "--user", "bob")
    assert run(target, "import", *ada).returncode == 0
    assert run(target, "import", *ada).stdout.startswith("0 created, 0 replaced, 1 unchanged, ")

    way_out = "--id-prefix stores this one beside it, and --take-over replaces it"
    for other, owner in ((bob, "of user ada"), ((bob[0], *ada[1:]), f"from {tmp_path}/a")):
        refused = run(target, "import", *other)
        assert refused.returncode == 1
        assert f"failed: line 2 (document notes.csv/1): doc_id: a document {owner} has this id; {way_out}" in (
            refused.stderr
        )
    with Client(target) as client:
        assert client.documents.get("notes.csv/1").scope.user == "ada"
        assert run(target, "import", *bob, "--id-prefix", "bob/").returncode == 0
        assert client.documents.get("bob/notes.csv/1").scope.user == "bob"
        assert run(target, "import", *bob, "--take-over").returncode == 0
        assert client.documents.get("notes.csv/1").content == "Tea of b"


def test_ids_begin_with_the_path_if_several_are_imported(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("mm/x", "mm/y"):
        Path(folder).mkdir(parents=True)
        Path(folder, "n.jsonl").write_text(json.dumps({"id": "1", "text": f"Tea of {folder}."}), encoding="utf-8")

    for paths in (("mm/x/n.jsonl", "./mm/y/n.jsonl"), ("mm/x", "mm/y/"), (f"{tmp_path}/mm/x", "mm/y")):
        assert run(target, "import", *paths, "--from", "jsonl").returncode == 0
    with Client(target) as client:
        ids = {each.doc_id for each in client.documents.list(view="ids")}
    assert ids == {"mm/x/n.jsonl/1", "mm/y/n.jsonl/1", f"{tmp_path}/mm/x/n.jsonl/1"}


def test_any_other_export_is_imported_with_a_mapping(target: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    notes = [
        {"no": number, "body": {"text": f"Note {number}."}, "tags": {"even": number % 2 == 0}} for number in (1, 2)
    ]
    path.write_text("\n".join(map(json.dumps, notes)), encoding="utf-8")
    [*results, _] = run_json(target, "import", path, "--map", "content=body.text,key=no", "--map", "*=tags,number=no")
    assert [(result["id"], result["outcome"]) for result in results] == [("1", "created"), ("2", "created")]
    with Client(target) as client:
        assert [fact.value for fact in client.facts.list(("imported",))] == [
            {"content": "Note 1.", "even": False, "number": 1},
            {"content": "Note 2.", "even": True, "number": 2},
        ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "mem0", "--map", "content=a"), "give --from or --map, not both"),
        (("-",), "cannot be read beside files"),
        (("--namespace", "a"), "belong to another system's export"),
        (("--from", "mem0", "--embed-anew"), "are for archives alone"),
        (("--from", "mem0", "--user", "ada"), "become facts, which have no scope"),
        (("--from", "chatgpt", "--namespace", "a"), "become documents"),
        (("--from", "chatgpt", "--on-conflict", "keep"), "are for facts"),
        (("--map", "key=id"), "say where the text is"),
        (("--map", "content"), "is not part=field"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    done = run("127.0.0.1:1", "import", path, *options)
    assert done.returncode == 2 and said in done.stderr
