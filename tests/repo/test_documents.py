"""The documents name only what exists."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from mnemon import Client
from mnemon_server import __version__

from tests.support.repository import ROOT, tracked_files

DOCUMENTS = tracked_files("*.md")
TARGET = re.compile(r"^([a-z][a-z0-9-]*):", re.MULTILINE)
MAKE_COMMAND = re.compile(r"(?:^|`)[ ]*make ([a-z][a-z0-9-]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
CLIENT_README = ROOT / "clients" / "python" / "README.md"
NAMED_METHOD = re.compile(r"`(\w+)\(")
HOME = "https://github.com/mnemon-ai/mnemon/blob/main/"
"""How READMEs that packages take along link to files, since only pages here can do so by relative paths."""


def _targets() -> set[str]:
    return set(TARGET.findall((ROOT / "Makefile").read_text()))


def _read(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def test_every_make_command_in_a_document_is_a_target() -> None:
    named = {(document, command) for document in DOCUMENTS for command in MAKE_COMMAND.findall(_read(document))}
    assert len(named) > 20
    assert {(document, command) for document, command in named if command not in _targets()} == set()


def test_every_link_to_a_file_has_a_target() -> None:
    links = [
        (document, link.replace(HOME, f"{ROOT}/")) for document in DOCUMENTS for link in LINK.findall(_read(document))
    ]
    files = [(document, link) for document, link in links if "://" not in link]
    assert len(files) > 20
    assert [(document, link) for document, link in files if not (document.parent / link).exists()] == []


def _methods_of(noun: str) -> set[str]:
    return {name for name in dir(_objects()[noun]) if not name.startswith("_")}


def _objects() -> dict[str, object]:
    with Client("127.0.0.1:1") as client:
        return {name: value for name, value in vars(client).items() if type(value).__name__.lower() == name}


def test_the_clients_readme_says_which_objects_share_a_method() -> None:
    table = _read(CLIENT_README).partition("| method | what it does | objects |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:4] for row in table.splitlines()[2:]]
    assert len(rows) > 10
    for methods, _, objects in rows:
        having = {noun for noun in _objects() if set(NAMED_METHOD.findall(methods)) & _methods_of(noun)}
        assert having == set(re.findall(r"\w+", objects)) & _objects().keys(), methods


@pytest.mark.parametrize("noun", sorted(_objects()))
def test_the_clients_readme_names_every_method_of_an_object(noun: str) -> None:
    text = _read(CLIENT_README)
    table = text.partition(f"| method of `client.{noun}` |")[2].partition("\n\n")[0]
    shown = {name for row in table.splitlines()[2:] for name in NAMED_METHOD.findall(row.split("|")[1])}
    assert shown | set(re.findall(rf"client\.{noun}\.(\w+)\(", text)) == _methods_of(noun)


def test_the_first_screen_starts_and_tests_the_server() -> None:
    first_screen = "\n".join(_read(ROOT / "README.md").splitlines()[:30])
    assert set(MAKE_COMMAND.findall(first_screen)) == {"serve", "test"}
    assert "from mnemon import Client" in first_screen


def test_every_target_is_explained_by_make_help() -> None:
    explained = set(re.findall(r"^([a-z][a-z0-9-]*):.*## ", _read(ROOT / "Makefile"), re.MULTILINE))
    assert explained == _targets()


@pytest.mark.parametrize(("given", "folder"), [("", "data"), ("kept", "kept")])
def test_make_serve_keeps_its_data_where_the_readme_says(given: str, folder: str) -> None:
    # Not the environment of the `make` that may run this test.
    environment = {"PATH": os.environ["PATH"], "MNEMON_DATA_DIR": given}
    run = partial(subprocess.run, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    command = run(["make", "--just-print", "serve"]).stdout.splitlines()[-1]
    done = run(["sh", "-c", command.replace(".venv/server/bin/mnemon-server", "echo")])
    assert done.stdout.split() == ["serve", "--data-dir", folder]
    assert "data goes to ./data" in _read(ROOT / "README.md")


def test_the_changelog_begins_with_the_version_of_the_server() -> None:
    newest = re.search(r"^## \[([^\]]+)\]", _read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__


def test_every_service_of_the_protos_is_in_the_readme() -> None:
    services = [
        f"mnemon.v1.{name}"
        for proto in tracked_files("protos/*.proto")
        for name in re.findall(r"^service (\w+)", _read(proto), re.MULTILINE)
    ]
    assert services
    assert [name for name in services if name not in _read(ROOT / "README.md")] == []


def test_every_proto_has_a_row_in_the_readme_of_the_protos() -> None:
    names = [proto.name for proto in tracked_files("protos/*.proto")]
    assert [name for name in names if f"`{name}`" not in _read(ROOT / "protos/README.md")] == []
