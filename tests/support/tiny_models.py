"""Models small enough to be built by a test: a folder with a graph, a tokenizer and their configuration."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

NUMBERS = 8
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SYNONYMS = (
    ("cat", "kitten"),
    ("fish", "aquarium"),
    ("bread", "loaf"),
    ("query:",),
    ("passage:",),
    ("a", "the", "of", "in", "that", "pet", "word"),
)
"""The words of the vocabulary. Those of a group have the same vector, so that they are found by meaning."""
VOCABULARY = (*SPECIAL, *(word for group in SYNONYMS for word in group))


def word_vectors() -> NDArray[np.float32]:
    """The vector of each token of the vocabulary."""
    random = np.random.default_rng(7)
    groups = random.normal(size=(len(SPECIAL) + len(SYNONYMS), NUMBERS))
    rows = [*range(len(SPECIAL)), *(len(SPECIAL) + n for n, group in enumerate(SYNONYMS) for _ in group)]
    return groups[rows].astype(np.float32)


def write_tokenizer(path: Path, *, special: bool = True) -> None:
    """A tokenizer that knows the words of the vocabulary."""
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(VOCABULARY)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    if special:
        ends = [("[CLS]", VOCABULARY.index("[CLS]")), ("[SEP]", VOCABULARY.index("[SEP]"))]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save(str(path))


def write_graph(
    path: Path,
    *,
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    output: str = "last_hidden_state",
    sentence: bool = False,
    kind: int = TensorProto.INT64,
    opset: int = 17,
    scaled_together: bool = False,
    factor: float = 1.0,
    weights_file: str = "",
) -> None:
    """A graph whose tokens have the vectors of the vocabulary.

    Args:
        path: where it is written.
        inputs: names of its inputs, all of shape (batch, sequence).
        output: name of its output.
        sentence: whether the output is one vector for each text (of its first token), not one for each token.
        kind: type of the inputs.
        opset: version of ONNX's operators that it claims.
        scaled_together: whether all vectors are quantised with a scale of the whole batch.
        factor: what the vectors are multiplied by.
        weights_file: name of a file beside it that gets the weights.
    """
    words = numpy_helper.from_array(word_vectors() * np.float32(factor), "words")
    nodes = [helper.make_node("Gather", ["words", inputs[0]], ["vectors"])]
    if scaled_together:
        nodes.append(helper.make_node("DynamicQuantizeLinear", ["vectors"], ["bytes", "scale", "zero"]))
        nodes.append(helper.make_node("DequantizeLinear", ["bytes", "scale", "zero"], ["rounded"]))
    last = nodes[-1].output[0]
    axes: list[str | int] = ["batch", NUMBERS] if sentence else ["batch", "sequence", NUMBERS]
    first = [numpy_helper.from_array(np.array(0, np.int64), "zero_index")] if sentence else []
    nodes.append(
        helper.make_node("Gather", [last, "zero_index"], [output], axis=1) if sentence
        else helper.make_node("Identity", [last], [output])
    )  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, kind, ["batch", "sequence"]) for name in inputs],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, axes)],
        [words, *first],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(
        model, path, save_as_external_data=bool(weights_file), location=weights_file or None, size_threshold=0
    )


def write_model(
    folder: Path,
    *,
    pooling: Mapping[str, Any] | None = None,
    prompts: Mapping[str, str] | None = None,
    tokens_max: int = 64,
    special: bool = True,
    **graph: Any,
) -> Path:
    """A folder as sentence-transformers writes it, with `onnx/model.onnx`; arguments as of `write_graph`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_graph(folder / "onnx" / "model.onnx", **graph)
    write_tokenizer(folder / "tokenizer.json", special=special)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json", pooling or {"pooling_mode_mean_tokens": True})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": tokens_max})
    write_json(folder / "tokenizer_config.json", {"pad_token": "[PAD]"})
    write_json(folder / "config_sentence_transformers.json", {"prompts": dict(prompts or {})})
    return folder


def write_json(path: Path, value: Any) -> None:
    """Writes a configuration file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
