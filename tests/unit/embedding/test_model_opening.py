"""Opening the default model: built once, cached, checked, rebuilt when damaged, and the same from every source."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from mnemon_server.domain.errors import ConfigurationError, EmbeddingError
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph import build_encoder
from safetensors.numpy import load_file

from tests.support.cases import exhaustive

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
WEIGHTS_FILE, TOKENIZER_FILE = MINILM.weights.name, MINILM.tokenizer.name
TEXTS = ["", "The cat sat on the mat.", "Nothing of the kind, said the astronomer to the king.", "猫が好きです"]


@pytest.fixture
def cache(model_cache: Path, int8_embedder: Embedder, tmp_path: Path) -> Path:
    """A cache folder to damage, filled with this model alone."""
    (tmp_path / "cache").mkdir()
    for file in (*model_cache.glob(f"{MINILM.weights.sha256[:16]}*-int8.*"), model_cache / TOKENIZER_FILE):
        shutil.copyfile(file, tmp_path / "cache" / file.name)
    return tmp_path / "cache"


def open_int8(cache: Path, model_dir: Path | None = None, built: list[str] | None = None) -> Embedder:
    progress = None if built is None else built.append
    return open_embedder(MODEL, precision="int8", model_dir=model_dir, cache_dir=cache, progress=progress)


def test_a_second_start_builds_nothing(cache: Path) -> None:
    built: list[str] = []
    open_int8(cache, built=built).close()
    assert built == []


def test_a_cached_graph_needs_no_weights(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    embedder = open_int8(cache)
    assert embedder.embed(["still here"]).shape == (1, 384)
    embedder.close()


def test_an_installed_graph_needs_neither_weights_nor_a_cache(
    cache: Path, int8_embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "mnemon_minilm"
    shutil.copytree(cache, package)
    (package / "__init__.py").touch()
    monkeypatch.setattr("sys.path", [str(package.parent)])
    embedder = open_int8(tmp_path / "unused")
    np.testing.assert_array_equal(embedder.embed(TEXTS), int8_embedder.embed(TEXTS))
    embedder.close()
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    "damage", ["flip", exhaustive("truncate"), "no checksum", exhaustive("empty checksum"), "no tokenizer"]
)
def test_a_damaged_cache_is_rebuilt(cache: Path, int8_embedder: Embedder, damage: str) -> None:
    (graph,) = cache.glob("*int8.onnx")
    content = bytearray(graph.read_bytes())
    match damage:
        case "flip":
            content[len(content) // 2] ^= 1
            graph.write_bytes(content)
        case "truncate":
            graph.write_bytes(content[: len(content) // 2])
        case "no checksum":
            graph.with_suffix(".sha256").unlink()
        case "empty checksum":
            graph.with_suffix(".sha256").write_text("")
        case _:
            (cache / TOKENIZER_FILE).unlink()
    built: list[str] = []
    embedder = open_int8(cache, built=built)
    assert len(built) == 1
    np.testing.assert_array_equal(embedder.embed(TEXTS), int8_embedder.embed(TEXTS))
    embedder.close()
    open_int8(cache, built=built).close()
    assert len(built) == 1, "the new graph must be cached"


def test_a_cache_that_cannot_be_written_is_an_error(weights_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EmbeddingError, match="cache folder"):
        open_int8(tmp_path / "file" / "cache", weights_folder)


def test_the_identity_depends_on_the_weights_and_not_on_their_location(
    cache: Path, weights_folder: Path, int8_embedder: Embedder, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in (WEIGHTS_FILE, TOKENIZER_FILE):
        shutil.copyfile(weights_folder / name, folder / name)
    embedder = open_int8(cache, folder)
    assert embedder.model == int8_embedder.model
    assert embedder.model.identity == f"{MODEL}@{MINILM.weights.sha256[:16]}/int8/384"
    embedder.close()


def exported(weights_folder: Path) -> onnx.ModelProto:
    """The model as others may write it: one matrix is a list of numbers, and not bytes."""
    built = build_encoder(load_file(weights_folder / WEIGHTS_FILE))
    model = onnx.ModelProto.FromString(built.SerializeToString())
    onnx.checker.check_model(model)
    matrix = next(each for each in model.graph.initializer if each.name == "encoder.layer.0.output.dense.weight")
    matrix.float_data.extend(onnx.numpy_helper.to_array(matrix).flat)
    matrix.ClearField("raw_data")
    return model


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx"])
def test_a_folder_with_its_own_graph_uses_it_and_has_another_identity(
    weights_folder: Path, int8_embedder: Embedder, tmp_path: Path, name: str
) -> None:
    own = tmp_path / "own" / name
    own.parent.mkdir(parents=True)
    onnx.save(exported(weights_folder), own)
    shutil.copyfile(weights_folder / TOKENIZER_FILE, tmp_path / "own" / TOKENIZER_FILE)
    embedder = open_int8(tmp_path / "cache", tmp_path / "own")
    assert embedder.model.revision != int8_embedder.model.revision
    np.testing.assert_allclose(embedder.embed(TEXTS), int8_embedder.embed(TEXTS), atol=1e-5)
    embedder.close()


def test_a_graph_that_is_not_an_encoder_is_refused(weights_folder: Path, tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["input_ids"], ["other"])],
        "other",
        [tensor("input_ids", onnx.TensorProto.INT64, ["batch", "sequence"])],
        [tensor("other", onnx.TensorProto.INT64, ["batch", "sequence"])],
    )
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    shutil.copyfile(weights_folder / TOKENIZER_FILE, tmp_path / TOKENIZER_FILE)
    with pytest.raises(EmbeddingError, match="hidden states"):
        open_int8(tmp_path / "cache", tmp_path)
    assert not list((tmp_path / "cache").glob(".*")), "a partly written file was left behind"


def test_a_graph_that_keeps_its_weights_in_other_files_is_refused(weights_folder: Path, tmp_path: Path) -> None:
    onnx.save(exported(weights_folder), tmp_path / "model.onnx", save_as_external_data=True, location="weights.bin")
    shutil.copyfile(weights_folder / TOKENIZER_FILE, tmp_path / TOKENIZER_FILE)
    with pytest.raises(EmbeddingError, match=r"model\.onnx keeps weights in weights\.bin; export them into one file"):
        open_int8(tmp_path / "cache", tmp_path)


def test_the_short_name_means_the_same_model(model_cache: Path, int8_embedder: Embedder) -> None:
    embedder = open_embedder("all-MiniLM-L6-v2", precision="int8", model_dir=None, cache_dir=model_cache)
    assert embedder.model == int8_embedder.model
    embedder.close()


def test_an_unknown_precision_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="int8 or fp32"):
        open_embedder(MODEL, precision="fp16", model_dir=None, cache_dir=tmp_path)  # type: ignore[arg-type]
