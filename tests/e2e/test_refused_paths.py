"""Paths that the operating system refuses: each command says whose they are, and which setting would help."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mnemon import ConfigurationError, Mnemon

from tests.support.server import START_S, clean_environment, run_command

OTHER_UID = 54_321
UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Root without capabilities, which still owns root's files."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give a folder to another user"
)


def run_unprivileged(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs Python as a user who may read no one else's folders."""
    return subprocess.run(
        [*UNPRIVILEGED, sys.executable, *map(str, words)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )


def of_another(folder: Path) -> Path:
    """A folder that belongs to another user alone."""
    folder.mkdir(mode=0o700)
    os.chown(folder, OTHER_UID, OTHER_UID)
    return folder


@needs_root
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("serve", "--listen", "127.0.0.1:0", "--embedding-model", "hashing", "--data-dir"), 1),
        (("verify",), 2),
        (("keys", "list", "--data-dir"), 1),
        (("erasure-key", "--data-dir"), 1),
        (("timeline", "verify"), 1),
    ],
)
def test_a_folder_of_another_user_is_named_with_its_owner(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    folder = of_another(tmp_path / "data")
    ended = run_unprivileged("-m", "mnemon_server", *words, folder)
    assert ended.returncode == code
    [line] = [line for line in ended.stderr.splitlines() if line.startswith("mnemon-server:")]
    assert f"{str(folder)!r} belongs to uid {OTHER_UID}, and this process runs as root (uid 0)" in line
    assert "Traceback" not in ended.stderr


@needs_root
def test_a_vault_that_cannot_be_read_is_not_verified(tmp_path: Path) -> None:
    (tmp_path / "tenants").mkdir()
    vault = of_another(tmp_path / "tenants" / "default")
    (vault / "records.db").touch()
    ended = run_unprivileged("-m", "mnemon_server", "verify", tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{str(vault)!r} cannot be used" in ended.stderr


@needs_root
def test_a_program_is_told_whose_the_folder_is(tmp_path: Path) -> None:
    folder = of_another(tmp_path / "data")
    ended = run_unprivileged("-c", "import mnemon, sys; mnemon.Mnemon(sys.argv[1], embedding_model='hashing')", folder)
    assert ended.stderr.splitlines()[-1].startswith("mnemon.shared.errors.ConfigurationError: ")
    assert f"belongs to uid {OTHER_UID}" in ended.stderr and "set data_dir" in ended.stderr


@pytest.mark.parametrize("words", [("serve", "--listen", "127.0.0.1:0", "--data-dir"), ("keys", "list", "--data-dir")])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    ended = run_command(*words, str(file / "data"))
    assert ended.returncode == 1
    assert f"{str(file)!r} is not a folder" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_full_disk_leaves_no_key_that_would_count_as_damaged(tmp_path: Path) -> None:
    # A limit of the process on the size of files is what a full disk is for all.
    full = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from mnemon_server.__main__ import main\nmain()"
    )
    words = ("erasure-key", "--data-dir", str(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", full, *words], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"mnemon-server: the key in {str(tmp_path / 'erasure.jwk')!r} cannot be used: ")
    assert run_command(*words).returncode == 0


@pytest.mark.parametrize("door", ["--listen", "--http-listen"])
def test_a_socket_that_cannot_be_made_says_why(tmp_path: Path, door: str) -> None:
    for path, reason in (
        (tmp_path / ("a" * 120), "the path of a socket may have 107 bytes, and this has"),
        (tmp_path / "missing" / "socket", f"{os.strerror(2)}; change that, or listen on another path"),
    ):
        words = ("serve", "--embedding-model", "hashing", "--data-dir", str(tmp_path / "data"))
        ended = run_command(*words, "--listen", "127.0.0.1:0", door, f"unix:{path}")
        assert ended.returncode == 1
        assert f"cannot listen on unix:{path}" in ended.stderr
        assert reason in ended.stderr


@pytest.mark.parametrize("temporary", ["no such folder", "a" * 120])
def test_a_program_is_told_of_a_temporary_folder_that_cannot_hold_a_socket(
    tmp_path: Path, temporary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / temporary
    if " " not in temporary:
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(ConfigurationError, match="TMPDIR"):
        Mnemon(tmp_path / "data", embedding_model="hashing")


def test_without_a_home_a_command_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_entry = "import pwd\ndef unknown(uid):\n    raise KeyError(uid)\npwd.getpwuid = unknown\n"
    (tmp_path / "sitecustomize.py").write_text(no_entry)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for words in (("serve", "--listen", "127.0.0.1:0"), ("verify",), ("keys", "list")):
        ended = run_command(*words, program=True, PYTHONPATH=path)
        assert ended.returncode in (1, 2)
        assert ended.stderr == (
            "mnemon-server: the folder for data is not known: HOME is not set, and the user with uid "
            f"{os.getuid()} has no home; set data_dir, or HOME\n"
        )
