"""Models in a folder: used as their configuration says, and refused by the name of the file that is wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from mnemon_server.domain.errors import ConfigurationError, EmbeddingError
from mnemon_server.embedding.base import Embedder, ModelOptions
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.folder import TOKENS_MAX
from onnx import TensorProto

from tests.support.tiny_models import NUMBERS, VOCABULARY, word_vectors, write_graph, write_json, write_model

TEXTS = ["cat", "the cat in the aquarium", "", "unknown words", "bread " * 200]


def opened(path: Path | str, **options: Any) -> Embedder:
    return open_embedder(
        str(path), precision="int8", model_dir=None, cache_dir=Path("/nowhere"), options=ModelOptions(**options)
    )


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(EmbeddingError) as caught:
        opened(path, **options)
    return str(caught.value)


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def token_vectors(*tokens: str) -> Any:
    return word_vectors()[[VOCABULARY.index(token) for token in tokens]]


POOLED: dict[str, Callable[[Any], Any]] = {
    "pooling_mode_mean_tokens": lambda tokens: tokens.mean(axis=0),
    "pooling_mode_cls_token": lambda tokens: tokens[0],
    "pooling_mode_lasttoken": lambda tokens: tokens[-1],
}


@pytest.mark.parametrize("mode", POOLED)
@pytest.mark.parametrize("special", [True, False])
def test_tokens_become_one_vector_as_the_configuration_says(tmp_path: Path, mode: str, special: bool) -> None:  # noqa: FBT001
    embedder = opened(write_model(tmp_path / "m", pooling={mode: True}, special=special))
    words = ["[CLS]", "cat", "bread", "[SEP]"] if special else ["cat", "bread"]
    # Beside a longer text, so that there is padding.
    vectors = embedder.embed(["cat bread", "a pet in the aquarium of bread"])
    np.testing.assert_allclose(vectors[0], unit(POOLED[mode](token_vectors(*words))), atol=1e-6)
    embedder.close()


@pytest.mark.parametrize("special", [True, False])
def test_vectors_have_unit_length_and_do_not_depend_on_other_texts(tmp_path: Path, special: bool) -> None:  # noqa: FBT001
    embedder = opened(write_model(tmp_path / "m", special=special, factor=100))
    together = embedder.embed(TEXTS)
    assert together.shape == (len(TEXTS), NUMBERS)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(together, np.concatenate([embedder.embed([text]) for text in TEXTS]), atol=1e-6)
    embedder.close()


def test_a_graph_that_scales_a_batch_together_reads_each_text_alone(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", scaled_together=True)
    embedder = opened(folder)
    np.testing.assert_array_equal(embedder.embed(TEXTS), np.concatenate([embedder.embed([text]) for text in TEXTS]))
    embedder.close()


def test_a_graph_with_vectors_of_texts_needs_no_pooling(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", output="sentence_embedding", sentence=True, kind=TensorProto.INT32)
    (folder / "modules.json").unlink()
    embedder = opened(folder)
    np.testing.assert_allclose(embedder.embed(["cat"])[0], unit(token_vectors("[CLS]")[0]), atol=1e-6)
    embedder.close()


def test_all_usual_inputs_are_given(tmp_path: Path) -> None:
    inputs = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    embedder = opened(write_model(tmp_path / "m", inputs=inputs))
    assert embedder.embed(["cat"]).shape == (1, NUMBERS)
    embedder.close()


def test_prompts_of_the_folder_go_before_texts_unless_they_are_set(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", prompts={"query": "query: ", "passage": "passage: "})
    embedder = opened(folder)
    assert (embedder.model.as_query("x"), embedder.model.as_passages(["x"])) == ("query: x", ["passage: x"])
    assert embedder.model.tokens_max == 64 - len(["[CLS]", "passage:", "[SEP]"])
    embedder.close()
    given = opened(folder, query_prefix="q ", passage_prefix="p ")
    assert (given.model.as_query("x"), given.model.as_passages(["x"])) == ("q x", ["p x"])
    given.close()


def test_long_texts_become_passages_that_fit_with_their_prefix(tmp_path: Path) -> None:
    embedder = opened(write_model(tmp_path / "m", prompts={"document": "passage: "}, tokens_max=40))
    text = "cat " * 100
    spans = embedder.split(text)
    assert (spans[0].start, spans[-1].end) == (0, len(text))
    passages = [text[span.start : span.end] for span in spans]
    assert max(len(passage.split()) for passage in passages) == embedder.model.tokens_max == 37
    assert embedder.token_counts(passages[:1]) == [37]
    assert embedder.split("cat") == [type(spans[0])(0, 3)]
    embedder.close()


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 50}, 50),
        ("sentence_bert_config.json", {"max_seq_length": 8192}, TOKENS_MAX),
        ("tokenizer_config.json", {"model_max_length": 100}, 100),
        ("tokenizer_config.json", {"model_max_length": 10**30}, TOKENS_MAX),
        ("config.json", {"max_position_embeddings": 77}, 77),
    ],
)
def test_the_limit_of_tokens_is_that_of_the_configuration(
    tmp_path: Path, file: str, content: dict[str, int], expected: int
) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "sentence_bert_config.json").unlink()
    write_json(folder / file, content)
    embedder = opened(folder)
    assert embedder.model.tokens_max == expected - 2
    embedder.close()


def test_vectors_are_shortened_as_set_or_as_the_folder_says(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    whole, cut = opened(folder), opened(folder, dimension=3)
    np.testing.assert_allclose(cut.embed(["cat"])[0], unit(whole.embed(["cat"])[0, :3]), atol=1e-6)
    write_json(folder / "config_sentence_transformers.json", {"truncate_dim": 5})
    told = opened(folder)
    assert (whole.model.dimension, cut.model.dimension, told.model.dimension) == (8, 3, 5)
    for embedder in (whole, cut, told):
        embedder.close()
    assert "8 numbers, of which 9 cannot be kept" in refusal(folder, dimension=9)


def change_graph(folder: Path) -> None:
    write_graph(folder / "onnx" / "model.onnx", factor=2)


def change_weights(folder: Path) -> None:
    path = folder / "onnx" / "weights.bin"
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def change_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"cat"', '"dog"'))


def change_pooling(folder: Path) -> None:
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True})


def change_limit(folder: Path) -> None:
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 60})


def change_prompt(folder: Path) -> None:
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"passage": "passage: "}})


def change_dimension(folder: Path) -> None:
    write_json(folder / "config_sentence_transformers.json", {"truncate_dim": 5})


@pytest.mark.parametrize(
    "change",
    [change_graph, change_weights, change_tokenizer, change_pooling, change_limit, change_prompt, change_dimension],
)
def test_another_file_is_another_model(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = write_model(tmp_path / "m", weights_file="weights.bin")
    copied = Path(shutil.copytree(folder, tmp_path / "elsewhere" / "m"))
    (copied / "README.md").write_text("not read")
    first, same = opened(folder), opened(copied)
    change(folder)
    other = opened(folder)
    assert first.model.identity == same.model.identity != other.model.identity
    for embedder in (first, same, other):
        embedder.close()


def test_one_of_several_graphs_is_named_by_its_path(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "model_quantized.onnx")
    assert f"To use another one, set embedding_model to its path, such as {folder}/onnx/model_qua" in refusal(folder)
    embedder = opened(folder / "onnx" / "model_quantized.onnx")
    assert (embedder.model.name, embedder.model.precision) == ("m", "model_quantized")
    embedder.close()


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def holding(name: str, content: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / name, content)


def text_in(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def graph(**arguments: Any) -> Callable[[Path], None]:
    return lambda folder: write_graph(folder / "onnx" / "model.onnx", **arguments)


SPOILED: list[tuple[Callable[[Path], None], str]] = [
    (without("onnx/model.onnx"), "has neither onnx/model.onnx nor model.onnx. Export the model to ONNX"),
    (without("tokenizer.json"), "tokenizer.json is missing. The tokenizer must be in the format"),
    (text_in("tokenizer.json", "{}"), "tokenizer.json cannot be read as a tokenizer"),
    (text_in("onnx/model.onnx", "no graph"), "cannot run {folder}/onnx/model.onnx: "),
    (graph(opset=99), "cannot run {folder}/onnx/model.onnx: "),
    (graph(inputs=("tokens",)), "has the inputs tokens; they must be input_ids and, if needed, attention_mask"),
    (graph(inputs=("input_ids", "pixels")), "has the inputs input_ids, pixels; they must be input_ids"),
    (graph(factor=float("nan")), "failed on a first text: The model computed a vector that is zero or not finite"),
    (graph(factor=0), "a vector that is zero or not finite"),
    (without("modules.json"), "modules.json is missing or names no module Pooling"),
    (without("1_Pooling/config.json"), "1_Pooling/config.json is missing, although modules.json names it"),
    (
        holding("1_Pooling/config.json", {"pooling_mode_max_tokens": True}),
        "sets pooling_mode_max_tokens; it must set exactly one of pooling_mode_cls_token, pooling_mode_mean_tokens",
    ),
    (holding("1_Pooling/config.json", {"pooling_mode_cls_token": False}), "sets no pooling mode; it must set"),
    (holding("modules.json", [{"type": "x.Transformer"}, {"type": "x.Dense"}]), "has the module 'Dense', which"),
    (text_in("modules.json", "["), "modules.json is not readable JSON"),
    (holding("modules.json", {}), "modules.json must hold a list of modules"),
    (holding("sentence_bert_config.json", {"max_seq_length": "x"}), "max_seq_length is 'x'; it must be a whole number"),
    (holding("sentence_bert_config.json", {"max_seq_length": 20}), "there must be at least 32. Check max_seq_length"),
    (holding("config_sentence_transformers.json", {"prompts": ["x"]}), "prompts must map names to texts"),
]


@pytest.mark.parametrize(("spoil", "words"), SPOILED)
def test_what_is_wrong_is_named_with_what_would_be_right(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    folder = write_model(tmp_path / "m")
    spoil(folder)
    assert words.format(folder=folder) in refusal(folder)


def test_outputs_that_are_not_known_are_listed(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    path = folder / "onnx" / "model.onnx"
    model = onnx.load(path)
    second = onnx.helper.make_node("Identity", ["vectors"], ["second"])
    model.graph.node.append(second)
    model.graph.node[-2].output[0] = "first"
    model.graph.output[0].name = "first"
    model.graph.output.append(onnx.helper.make_tensor_value_info("second", TensorProto.FLOAT, [None, None, NUMBERS]))
    onnx.save(model, path)
    assert "has the outputs first of 3 axes, second of 3 axes; it must have sentence_embedding" in refusal(folder)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/no does not exist; it must be a folder with model.onnx" in refusal(tmp_path / "no")
    assert f"{tmp_path}/no.onnx does not exist" in refusal(tmp_path / "no.onnx")


def test_options_are_refused_for_a_model_that_has_none() -> None:
    with pytest.raises(
        ConfigurationError, match=r"embedding_query_prefix and .* must not be set for the model hashing"
    ):
        opened("hashing", query_prefix="x")
