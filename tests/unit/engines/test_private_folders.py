"""Files that the server writes are readable by its own user only, whatever the umask and the earlier permissions."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Mnemon

OPEN_UMASK = 0o000


@pytest.fixture(autouse=True)
def _careless_umask() -> Iterator[None]:
    before = os.umask(OPEN_UMASK)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): oct(mode(path)) for path in folder.rglob("*") if mode(path) & 0o077}


def fill(data_dir: Path) -> None:
    with Mnemon(data_dir, embedding_model="hashing", timeline_segment_max_events=10) as client:
        client.documents.put("d", "cats sleep")
        for number in range(12):
            client.timeline.add("task", f"event {number}", user="ada")
        # With the files that exist only while the server runs.
        assert open_to_others(data_dir) == {}


def test_folders_and_files_are_private_to_the_server(tmp_path: Path) -> None:
    fill(tmp_path / "new" / "data")
    assert open_to_others(tmp_path) == {}
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) >= 3


def test_open_permissions_are_tightened_but_the_parent_folder_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "tenants" / "default").mkdir(parents=True, mode=0o755)
    fill(data)
    (data / "tenants").chmod(0o755)
    (data / "tenants" / "default" / "records.db").chmod(0o644)
    fill(data)
    assert mode(data) == 0o777
    assert open_to_others(data) == {}
