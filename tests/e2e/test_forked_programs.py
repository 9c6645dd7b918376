"""Programs that fork while a vault is open, as gunicorn --preload, Celery and daemons do."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mnemon import Mnemon

from tests.support.forks import run_python

HASHING = {"embedding_model": "hashing"}
BEGIN = """
import asyncio, os, signal, sys
from mnemon import AsyncMnemon, ClientClosedError, ConfigurationError, Mnemon, MnemonError

folder = sys.argv[1]
hashing = {"embedding_model": "hashing"}
memory = Mnemon(folder, **hashing)
memory.remember("Ada likes tea.", user="ada")

def forked(child):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # it must end by itself
        child()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def told(error, call):
    try:
        call()
    except error as raised:
        print(str(raised), flush=True)
    else:
        sys.exit("it was answered")
"""
END = """
print(memory.recall("tea", user="ada")[0].content)
memory.close()
with Mnemon(folder, **hashing) as again:
    print(again.recall("tea", user="ada")[0].content)
"""
UNHARMED = ["Ada likes tea."] * 2


def interpreted(program: str, folder: Path) -> Any:
    """Runs the program in a separate interpreter, which ends like any other."""
    return subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)


def ran(program: str, folder: Path, run: Callable[..., Any] = run_python) -> list[str]:
    done = run(BEGIN + program, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


def test_a_child_that_only_ends_ends_with_its_code_and_harms_nothing(tmp_path: Path) -> None:
    program = "print(forked(lambda: sys.exit(3)), flush=True)" + END
    assert ran(program, tmp_path, interpreted) == ["3", *UNHARMED]


def test_a_child_is_told_that_the_vault_is_its_parents(tmp_path: Path) -> None:
    program = """
def child():
    told(ClientClosedError, lambda: memory.recall("tea", user="ada"))
    told(MnemonError, lambda: memory.remember("Ada likes coffee.", user="ada"))
    memory.close()
    sys.exit(0)
print(forked(child), flush=True)
"""
    *errors, code, first, second = ran(program + END, tmp_path)
    assert all("belongs to its parent" in error and str(tmp_path) in error for error in errors) and len(errors) == 2
    assert [code, first, second] == ["0", *UNHARMED]


@pytest.mark.parametrize("end", ["memory.close()", "del memory"])
def test_a_child_that_lives_on_keeps_no_folder_locked(tmp_path: Path, end: str) -> None:
    program = f"""
reads, writes = os.pipe()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    os.close(writes)
    os.read(reads, 1)  # until the parent has ended, too
    sys.exit(0)
{end}
with Mnemon(folder, **hashing) as again:
    print(again.recall("tea", user="ada")[0].content)
"""
    assert ran(program, tmp_path) == UNHARMED[:1]


def test_a_child_that_lives_longer_than_its_parent_keeps_no_folder_locked(tmp_path: Path) -> None:
    program = """
if os.fork() == 0:
    signal.alarm(60)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # nothing waits for what it prints
    os.dup2(1, 2)
    reads, writes = os.pipe()
    os.read(reads, 1)  # for good
os._exit(0)
"""
    ran(program, tmp_path)
    with Mnemon(tmp_path, **HASHING) as memory:
        assert memory.recall("tea", user="ada")[0].content == "Ada likes tea."


@pytest.mark.parametrize("kind", ["Mnemon", "AsyncMnemon"])
def test_a_child_that_opens_a_vault_is_told_what_to_do(tmp_path: Path, kind: str) -> None:
    program = f"""
def child():
    told(ConfigurationError, lambda: {kind}(folder + "-of-the-child"))
    sys.exit(0)
print(forked(child), flush=True)
"""
    error, code, *rest = ran(program + END, tmp_path)
    assert "after the fork" in error and "spawn" in error
    assert [code, *rest] == ["0", *UNHARMED]


def test_a_daemon_whose_parent_has_ended_leaves_the_vault_as_it_was(tmp_path: Path) -> None:
    program = """
reads, writes = os.pipe()
if os.fork() == 0:
    os.setsid()
    told(ClientClosedError, lambda: memory.recall("tea", user="ada"))
    os.write(writes, b"told")
    sys.exit(0)
os.read(reads, 4)
sys.exit(0)
"""
    [error] = ran(program, tmp_path)
    assert "belongs to its parent" in error
    ran(END, tmp_path)
