"""The files of an embedded Chroma are damaged, removed and emptied: the index serves again and leaves no traces."""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import BackendConnectionError, ConfigurationError, EmbeddingModelMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings
from mnemon_server.engines.chroma.folder import LockedFolder
from mnemon_server.engines.chroma.protocol import CollectionError, Failure

from tests.contract.vector_index import DIMENSION, MODEL, found, one_each, unit_vectors
from tests.support.chroma_index import embedded, files_with, files_with_vector, kill_child, quarantined, truncate

DATA_FILES = [
    "chroma.sqlite3",
    "header.bin",
    "data_level0.bin",
    "length.bin",
    "link_lists.bin",
    "index_metadata.pickle",
]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ChromaIndex]:
    index = embedded(tmp_path)
    index.open()
    yield index
    index.close()


def zero_a_page(file: Path) -> None:
    content = bytearray(file.read_bytes())
    start = min(len(content) // 2, max(0, len(content) - 4096))
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    file.write_bytes(content)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[len(content) // 3] ^= 0x10
    file.write_bytes(content)


def remove(file: Path) -> None:
    file.unlink()


# All damages except an empty file. Each one starts Chroma several times, so only one is in the short form.
OTHERS = [name for name in DATA_FILES if name not in ("chroma.sqlite3", "link_lists.bin")]
DAMAGES = [truncate, zero_a_page, flip_a_bit, remove]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 1,300 entries whose graph was written to its files. Chroma was closed cleanly."""
    folder = tmp_path_factory.mktemp("filled")
    index = embedded(folder)
    index.apply(one_each(unit_vectors(1300, 30)), [])
    index.close()
    assert {file.name for file in folder.rglob("*")} >= set(DATA_FILES)
    return folder


def damaged_copy(filled: Path, target: Path, name: str, damage: Callable[[Path], None], *, sealed: bool) -> None:
    shutil.copytree(filled / "chroma", target / "chroma")
    if not sealed:  # as after a kill, when only the files themselves show the damage
        (target / "chroma" / "mnemon-seal.json").unlink()
    [file] = (target / "chroma").rglob(name)
    damage(file)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["chroma.sqlite3", *OTHERS])
def test_damage_to_any_closed_file_breaks_the_seal(
    filled: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damaged_copy(filled, tmp_path, name, damage, sealed=True)
    with closing(LockedFolder(tmp_path / "chroma", wait_s=0)) as folder:
        with pytest.raises(CollectionError) as refused:
            folder.break_seal()
        assert refused.value.failure is Failure.DAMAGED


@pytest.mark.parametrize("name", ["chroma.sqlite3", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_one_flipped_bit_in_closed_files_is_detected_before_chroma_reads_them(
    filled: Path, tmp_path: Path, name: str
) -> None:
    damaged_copy(filled, tmp_path, name, flip_a_bit, sealed=True)
    index = embedded(tmp_path)
    assert index.open().entry_count == 0
    assert len(quarantined(tmp_path)) == 1
    vectors = unit_vectors(3, 31)
    index.apply(one_each(vectors), [])
    assert found(index, vectors[2], limit=1).keys() == {2}
    index.close()


@pytest.mark.parametrize(
    "damage",
    [truncate, *(pytest.param(damage, marks=pytest.mark.slow) for damage in DAMAGES if damage is not truncate)],
)
@pytest.mark.parametrize(
    "name",
    [
        *("chroma.sqlite3", "data_level0.bin", "index_metadata.pickle"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("header.bin", "length.bin", "link_lists.bin")),
    ],
)
def test_damage_after_a_kill_never_harms_the_parent_and_the_index_serves_again(
    filled: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damaged_copy(filled, tmp_path, name, damage, sealed=False)
    index = embedded(tmp_path, limits={"open_timeout_s": 30.0})
    state = index.open()
    assert state.entry_count in (0, 1300)
    assert len(quarantined(tmp_path)) == (1 if state.entry_count == 0 else 0)
    vectors = unit_vectors(3, 32)
    index.apply(one_each(vectors, 5000), [])
    assert found(index, vectors[2], limit=1).keys() == {5002}
    index.close()


def test_a_folder_removed_under_a_running_child_is_created_again(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(3, 33)
    before = index.open()
    index.apply(one_each(vectors), [])
    shutil.rmtree(tmp_path / "chroma")
    after = index.open()
    assert after.entry_count == 0
    assert after.generation != before.generation
    index.apply(one_each(vectors), [])
    assert len(found(index, vectors[0])) == 3


def test_an_index_recreated_by_a_restarted_child_does_not_count_as_filled(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(3, 34)
    index.apply(one_each(vectors), [])
    kill_child(index)
    shutil.rmtree(tmp_path / "chroma")
    with pytest.raises(BackendConnectionError):
        index.apply(one_each(vectors[:1], 10), [])
    with pytest.raises(BackendConnectionError, match="opened again"):
        index.search(vectors[0], limit=1, equal=RecordFilter())
    assert index.open().entry_count == 0


def test_reset_leaves_neither_text_nor_vector_in_any_file(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(1300, 35)
    index.apply(one_each(vectors), [])
    text, vector = b"passage 0 of doc-17", vectors[17]
    assert "chroma.sqlite3" in files_with(tmp_path, text)
    assert "data_level0.bin" in files_with_vector(tmp_path, vector)
    index.reset()
    index.close()
    assert files_with(tmp_path, text) + files_with_vector(tmp_path, vector) == []


def test_calls_after_close_are_refused(index: ChromaIndex) -> None:
    index.close()
    with pytest.raises(BackendConnectionError, match="closed"):
        index.search(unit_vectors(1, 0)[0], limit=1, equal=RecordFilter())
    with pytest.raises(BackendConnectionError, match="closed"):
        index.open()
    assert index.child_pid is None


def test_files_are_readable_by_their_owner_only(tmp_path: Path, index: ChromaIndex) -> None:
    index.apply(one_each(unit_vectors(3, 36)), [])
    index.close()
    assert [str(file) for file in tmp_path.glob("chroma/**/*") if file.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("other", [{"model_identity": "another@2"}, {"dimension": DIMENSION + 1}])
def test_a_collection_of_another_model_is_refused_and_left_as_it_is(
    tmp_path: Path, index: ChromaIndex, other: dict[str, Any]
) -> None:
    index.apply(one_each(unit_vectors(3, 40)), [])
    index.close()
    stranger = embedded(tmp_path, **other)
    with pytest.raises(
        EmbeddingModelMismatchError, match=re.escape(f"has vectors of {MODEL} ({DIMENSION} components each)")
    ):
        stranger.open()
    stranger.close()
    owner = embedded(tmp_path)
    assert owner.open().entry_count == 3
    owner.close()


def test_exactly_one_location_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="either a path"):
        ChromaSettings()
    with pytest.raises(ConfigurationError, match="either a path"):
        ChromaSettings(path=tmp_path, host="localhost")
