"""Builds the ONNX graph of a BERT sentence encoder from its weights: encoder, mean pooling, normalisation."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding import onnx_messages as onnx

HEADS = 12
LAYER_NORM_EPSILON = 1e-12
OUTPUT = "embedding"
WORD_EMBEDDINGS = "word_embeddings"
"""The node with the embedding of each token."""
_OPSET, _IR_VERSION = 20, 9
_MICROSOFT = "com.microsoft"

Array = NDArray[Any]
Weights = Mapping[str, NDArray[np.float32]]


class GraphBuilder:
    """Collects the nodes and constants of a graph. Each value has the name of the node that produces it."""

    def __init__(self) -> None:
        self.nodes: list[onnx.Node] = []
        self.constants: dict[str, onnx.Tensor] = {}

    def constant(self, name: str, value: Array) -> str:
        """Adds a constant, and returns its name."""
        self.constants[name] = onnx.make_tensor(name, value)
        return name

    def node(self, operator: str, inputs: list[str], output: str, *, domain: str = "", **attributes: Any) -> str:
        """Adds a node with one output, and returns the output's name."""
        self.nodes.append(onnx.make_node(operator, inputs, [output], name=output, domain=domain, **attributes))
        return output


def make_model(name: str, graph: GraphBuilder, output: onnx.ValueInfo) -> onnx.Model:
    """A model from `input_ids` and `attention_mask`, int64 of shape (batch, sequence), to `output`."""
    inputs = [onnx.make_value(value, onnx.INT64, ["batch", "sequence"]) for value in ("input_ids", "attention_mask")]
    constants = list(graph.constants.values())
    opsets = [("", _OPSET), (_MICROSOFT, 1)]
    return onnx.make_model(name, graph.nodes, inputs, [output], constants, opsets=opsets, ir_version=_IR_VERSION)


def build_sentence_encoder(weights_file: Path) -> onnx.Model:
    """A model from `input_ids` and `attention_mask`, int64 of shape (batch, sequence), to `embedding` of shape (batch,
    dimension).
    """
    model = build_encoder(load_file(weights_file))
    add_pooling(model)
    return model


def build_encoder(weights: Weights, add_words: Callable[[GraphBuilder], None] | None = None) -> onnx.Model:
    """The encoder alone. Its output `last_hidden_state` has the shape (batch, sequence, dimension).

    The weights have their names in BERT. `add_words` adds the node WORD_EMBEDDINGS, of that shape, if the embeddings of
    words are not among them.
    """
    graph = GraphBuilder()
    graph.node("Cast", ["attention_mask"], "attention_mask_int32", to=onnx.INT32)
    if add_words is None:
        _add_words(graph, weights)
    else:
        add_words(graph)
    hidden = _embeddings(graph, weights)
    for layer in range(_layer_count(weights)):
        hidden = _layer(graph, weights, f"encoder.layer.{layer}", hidden)
    graph.node("Identity", [hidden], "last_hidden_state")
    dimension = weights["embeddings.position_embeddings.weight"].shape[1]
    return make_model("bert", graph, onnx.make_value("last_hidden_state", onnx.FLOAT, ["batch", "sequence", dimension]))


def add_pooling(model: onnx.Model) -> None:
    """Adds mean pooling to a model, also an exported one, whose first output is its hidden states.

    Raises:
        EmbeddingError: the model neither outputs hidden states nor already ends in sentence embeddings.
    """
    named = {output.name: output for output in model.graph.output}
    if OUTPUT in named:
        return
    shape = model.graph.output[0].type.tensor_type.shape.dim
    if len(shape) != 3 or shape[2].dim_value <= 0 or model.opset_import[0].version < 13:
        raise EmbeddingError(
            "The model's ONNX file must end in hidden states of shape (batch, sequence, dimension), opset 13 or newer."
        )
    graph = GraphBuilder()
    graph.node("Cast", ["attention_mask"], "attention_mask_float", to=onnx.FLOAT)
    # The sum over the tokens. The mean has the same direction, and the length is normalised to 1.
    graph.node("Einsum", ["attention_mask_float", model.graph.output[0].name], "pooled", equation="bs,bsh->bh")
    graph.node("LpNormalization", ["pooled"], OUTPUT, axis=-1, p=2)
    model.graph.node.extend(graph.nodes)
    del model.graph.output[:]
    model.graph.output.append(onnx.make_value(OUTPUT, onnx.FLOAT, ["batch", shape[2].dim_value]))


def _layer_count(weights: Weights) -> int:
    return len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})


def _add_words(graph: GraphBuilder, weights: Weights) -> None:
    graph.constant("words", weights["embeddings.word_embeddings.weight"])
    graph.node("Gather", ["words", "input_ids"], WORD_EMBEDDINGS)


def _embeddings(graph: GraphBuilder, weights: Weights) -> str:
    # A text has only one segment, so segment 0's embedding is added at every position.
    positions = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    graph.constant("positions", positions)
    graph.constant("zero", np.array([0], np.int64))
    graph.node("Shape", ["input_ids"], "length", start=1, end=2)
    graph.node("Slice", ["positions", "zero", "length", "zero"], "position_embeddings")
    graph.node("Add", [WORD_EMBEDDINGS, "position_embeddings"], "embedding_sum")
    scale, shift = _layer_norm(graph, weights, "embeddings.LayerNorm")
    inputs = ["embedding_sum", scale, shift]
    return graph.node("LayerNormalization", inputs, "embeddings", axis=-1, epsilon=LAYER_NORM_EPSILON)


def _layer(graph: GraphBuilder, weights: Weights, prefix: str, hidden: str) -> str:
    attended = _attention(graph, weights, f"{prefix}.attention", hidden)
    inner = _dense(graph, weights, f"{prefix}.intermediate.dense", attended)
    bias = graph.constant(f"{inner}.bias", weights[f"{prefix}.intermediate.dense.bias"])
    activated = graph.node("BiasGelu", [inner, bias], f"{inner}.gelu", domain=_MICROSOFT)
    return _dense_and_residual(graph, weights, f"{prefix}.output", activated, attended)


def _attention(graph: GraphBuilder, weights: Weights, prefix: str, hidden: str) -> str:
    # One multiplication for query, key and value together is faster than three.
    parts = [f"{prefix}.self.{part}" for part in ("query", "key", "value")]
    matrix = graph.constant(f"{prefix}.weight", np.concatenate([weights[f"{part}.weight"].T for part in parts], 1))
    bias = graph.constant(f"{prefix}.bias", np.concatenate([weights[f"{part}.bias"] for part in parts]))
    projected = graph.node("MatMul", [hidden, matrix], f"{prefix}.projected")
    graph.nodes.append(onnx.make_node("Split", [projected], parts, name=f"{prefix}.split", axis=-1, num_outputs=3))
    inputs = [*parts, bias, "attention_mask_int32"]
    context = graph.node("MultiHeadAttention", inputs, f"{prefix}.context", domain=_MICROSOFT, num_heads=HEADS)
    return _dense_and_residual(graph, weights, f"{prefix}.output", context, hidden)


def _dense(graph: GraphBuilder, weights: Weights, prefix: str, value: str) -> str:
    matrix = graph.constant(f"{prefix}.weight", weights[f"{prefix}.weight"].T)
    return graph.node("MatMul", [value, matrix], prefix)


def _dense_and_residual(graph: GraphBuilder, weights: Weights, prefix: str, value: str, residual: str) -> str:
    dense = _dense(graph, weights, f"{prefix}.dense", value)
    scale, shift = _layer_norm(graph, weights, f"{prefix}.LayerNorm")
    bias = graph.constant(f"{prefix}.bias", weights[f"{prefix}.dense.bias"])
    # Three nodes take half the time of ONNX Runtime's SkipLayerNormalization, which is not vectorised.
    graph.node("Add", [dense, bias], f"{prefix}.biased")
    graph.node("Add", [residual, f"{prefix}.biased"], f"{prefix}.sum")
    inputs = [f"{prefix}.sum", scale, shift]
    return graph.node("LayerNormalization", inputs, f"{prefix}.normalized", axis=-1, epsilon=LAYER_NORM_EPSILON)


def _layer_norm(graph: GraphBuilder, weights: Weights, prefix: str) -> tuple[str, str]:
    scale = graph.constant(f"{prefix}.scale", weights[f"{prefix}.weight"])
    return scale, graph.constant(f"{prefix}.shift", weights[f"{prefix}.bias"])
