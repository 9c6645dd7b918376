"""The folder for what ends with the process."""

import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines import temporary_folder as module
from mnemon_server.engines.temporary_folder import temporary_folder

KILLED = """
import os, signal
from mnemon_server.engines.temporary_folder import temporary_folder

with temporary_folder() as folder:
    (folder / "file").write_text("text")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that TMPDIR names."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_it_belongs_to_the_user_alone_and_nothing_of_it_remains(parent: Path) -> None:
    with temporary_folder() as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("text")
        assert (folder.parent, stat.S_IMODE(folder.stat().st_mode)) == (parent, 0o700)
    assert list(parent.iterdir()) == []


def test_what_a_killed_process_leaves_behind_is_removed_by_the_next_one_alone(parent: Path) -> None:
    (parent / "another").touch()
    with temporary_folder() as running:
        subprocess.run([sys.executable, "-c", KILLED], check=False)
        assert len({*parent.iterdir()} - {running, parent / "another"}) == 1
        with temporary_folder() as next_one:
            assert {*parent.iterdir()} == {running, next_one, parent / "another"}


def test_shared_memory_is_used_if_there_is_enough_of_it(
    parent: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = tmp_path_factory.mktemp("shared")
    monkeypatch.setattr(module, "SHARED_MEMORY", shared)
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    monkeypatch.delenv("TMPDIR")
    for minimum, expected in ((0, shared), (1 << 62, parent)):
        monkeypatch.setattr(module, "FREE_MIN_BYTES", minimum)
        with temporary_folder() as folder:
            assert folder.parent == expected
    monkeypatch.setattr(module, "SHARED_MEMORY", shared / "missing")
    with temporary_folder() as folder:
        assert folder.parent == parent


def test_a_parent_that_refuses_is_an_error_that_says_what_to_set(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(parent / "missing"))
    with pytest.raises(ConfigurationError, match="set TMPDIR to another folder"), temporary_folder():
        pass
