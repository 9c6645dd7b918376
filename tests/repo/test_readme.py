"""The examples in the READMEs run as printed, from the first block to the last, each README on its own real server."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mnemon import Client

from tests.support.documents import Block, blocks
from tests.support.forks import run_python
from tests.support.repository import ROOT
from tests.support.server import server_process
from tests.support.shell_lines import Shell

PRINTED_ADDRESS, PRINTED_HTTP = "127.0.0.1:50051", "127.0.0.1:8080"
OTHER_SERVER = "unix:/run/other.sock"
EXAMPLE_LINES_MAX = 8
LOOP_LINES_MAX = 16
"""Of an example with a loop over what a model says, all lines of it."""
SCRIPTED_MODEL = ROOT / "tests" / "support" / "scripted_model"
"""Stands in for a vendor's package, so that no example needs a key or a network."""
README, CLIENT_README = ROOT / "README.md", ROOT / "clients" / "python" / "README.md"
KINDS = ROOT / "protos" / "KINDS.md"

SHOWN_ELSEWHERE = {
    "make serve": "runs until it is stopped",
    "make test": "runs this",
    'make serve ARGS="--http-listen 127.0.0.1:8080"': "runs until it is stopped",
    "pip install mnemon-server": "tests/e2e/test_packages.py",
    "pip install 'mnemon-client[cli]'": "tests/e2e/test_packages.py",
    "mnemon mcp --transport http --user ada": "runs until it is stopped: tests/e2e/test_mcp_server.py",
}
SHOWN = {
    "index docker/README.md docker/docker-compose.yml": r"2 created, 0 replaced, 0 unchanged, 0 failed",
    'search "which port must never be published?"': r"docker/docker-compose\.yml",
    "buf curl": r'"docId": *"tea"',
    """curl --json '{"query":""": '"docId":"tea"',
    """curl --json '{"memory":""": '"content":"Ada paints."',
    """curl --json '{"memories":""": '"field":"memories","description":"is unknown',
    """curl --json '{"pageSize":""": '"changes":',
    "curl http": "^ok$",
    'remember "Ada is allergic to nuts."': "remembered ",
    'recall "is she allergic to anything?"': r"Ada is allergic to nuts\.",
    'remembered "is she allergic to anything?"': r"\n *0\.\d+ +100% +Ada is allergic to nuts\.",
    "forecast --by": "Ada is allergic to nuts|fade_time",
    'learn "Ada lives in Munich now."': "learnt |known already",
    'similar "Ada lives in Munich"': r"0\.9\d\d +Ada lives in Munich now\.",
    "decisions --user ada": "newer by|more important",
    "rules export": "",
    'record "Ada must renew her passport."': "recorded |known already",
    "chat add trip": "added ",
    "chat context trip": r"I moved to Bern in May\.",
    "chat import conversations.json": "1 added",
    "timeline passport": "Ada must renew her passport",
    "bridge policy": "0.8",
    "prune --user ada": "0 events|would",
    "tools list --style anthropic": '"manage_memory"',
    "tools call search_memory": "no meat since May",
    "facts list user.ada": "no meat since May",
    "index docs/": "1 created",
    'search "how do I renew a passport"': "passport.md",
    "list --json": "",
    "delete --project handbook --dry-run": "1 ",
    "info": "absolute scores",
    'remember "Ada likes green tea."': "remembered ",
    'remembered "what does she drink?"': "Ada likes green tea|nothing found",
    "memories --json": "0 remembered, 0 updated, [1-9]",
    "forget --purge": "would",
    "unmerge": "restored ",
    "timeline --json": "0 recorded, [1-9]",
    "update passport.md": "replaced passport.md, revision 2",
    "summary": "task",
    "facts put user.ada": "stored user.ada tea",
    'facts search "what does she drink?"': "Ada likes green tea",
    "facts list user --below": "[1-9] stored, 0 failed",
    "tools call manage_memory": "created memory",
    "tools execute answer.txt": '"created memory',
    "export vault.jsonl": "unchanged",
    "import memories.json": "1 created",
    "import conversations.json": "1 created",
}
"""What each command prints, by how it begins; the first row that fits counts."""


def python(block: Block, address: str, http: str) -> None:
    """Runs the block and compares its output, in which … stands for anything."""
    program = block.text.replace(PRINTED_ADDRESS, address)
    if not re.search(r"with Client\(|Mnemon\(", program):
        program = f'from mnemon import Client, F\nclient = Client("{address}")\n{program}'
    run = run_python(program, folders=[SCRIPTED_MODEL])
    assert (run.returncode, run.stderr) == (0, ""), block.text
    assert block.is_printed_by(run.stdout), f"{block.text}\nprinted\n{run.stdout}"


def commands(block: Block, address: str, http: str) -> None:
    """Runs each line and checks its output."""
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        command = re.sub(r"^\$ |\s+#.*$", "", line).strip()
        if command in SHOWN_ELSEWHERE:
            continue
        said = said_by(command)
        returncode, output, problems = run_line(command.replace(PRINTED_HTTP, http), address)
        assert returncode == 0, f"{command}\n{output}{problems}"
        assert re.search(said, output), f"{command}\nprinted\n{output}{problems}"


def said_by(command: str) -> str:
    """The expected output of the command."""
    name = command.removeprefix(".venv/server/bin/").removeprefix("mnemon ")
    rows = [said for begin, said in SHOWN.items() if name.startswith(begin)]
    assert rows, f"no expected output is known for: {command}"
    return rows[0]


def run_line(command: str, address: str) -> tuple[int, str, str]:
    if command.startswith(("buf ", "curl ")):
        name, *words = shlex.split(command.replace(PRINTED_ADDRESS, address))
        program = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        assert program, f"{name} is not installed"
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr
    with Client(address) as memory:
        decisions = [each.decision_id for each in memory.conflicts.list_decisions()]
    command = re.sub(r"unmerge \S+", lambda _: f"unmerge {decisions[0]}", command).replace(OTHER_SERVER, address)
    shown = Shell(address).run(command)
    return shown.returncode, shown.stdout, shown.stderr


RUN = {"python": python, "sh": commands, "console": commands}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the files that the documents name."""
    working = tmp_path / "working"
    working.mkdir()
    for name in ("docker", "protos"):
        (working / name).symlink_to(ROOT / name)
    (working / "docs").mkdir()
    (working / "docs" / "passport.md").write_text("To renew a passport, bring the old one.", encoding="utf-8")
    (working / "docs" / "photo.png").write_bytes(b"\x89PNG\0")
    call = '[[ABP_TOOL:manage_memory]]{"content": "Ada runs."}[[END_ABP_TOOL]]'
    (working / "answer.txt").write_text(call, encoding="utf-8")
    mem0 = '{"results": [{"id": "1", "memory": "Ada sings.", "user_id": "ada"}]}'
    (working / "memories.json").write_text(mem0, encoding="utf-8")
    messages = [{"uuid": "m", "text": "When does the train leave?", "sender": "human"}]
    conversations = json.dumps([{"uuid": "c", "name": "Trains", "chat_messages": messages}])
    (working / "conversations.json").write_text(conversations, encoding="utf-8")
    monkeypatch.chdir(working)
    return working


@pytest.mark.weights
@pytest.mark.parametrize("document", [README, CLIENT_README, KINDS], ids=["README", "clients", "kinds"])
def test_every_block_and_command_does_what_is_printed(document: Path, folder: Path, tmp_path: Path) -> None:
    flags = ("--embedding-model", "sentence-transformers/all-MiniLM-L6-v2", "--knowledge-store-backend", "local")
    with server_process(tmp_path / "data", *flags, "--http-listen", "127.0.0.1:0") as server:
        address, http = server.address(), server.http_address()
        for block in blocks(document, RUN):
            RUN[block.language](block, address, http)


def test_every_example_of_the_first_page_is_short_and_shows_its_output() -> None:
    examples = blocks(README, ["python"])
    assert len(examples) > 3
    for example in examples:
        most = LOOP_LINES_MAX if "while " in example.text else EXAMPLE_LINES_MAX
        assert len([line for line in example.text.splitlines() if line]) <= most
        assert example.printed
