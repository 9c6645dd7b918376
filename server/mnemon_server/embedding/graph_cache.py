"""A folder of built graphs with their checksums. A graph is valid for one builder version and one set of weights."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.files import sha256_of, write_atomically
from mnemon_server.embedding.weights import TOKENIZER_FILE, TOKENIZER_SHA256, ModelFiles, Progress

Precision = Literal["int8", "fp32"]

BUILDER_VERSION = 3
"""Part of the file name. Increase it if the builder makes a different graph from the same weights."""


class GraphCache:
    """A folder with graphs and the tokenizer, which together are all that a start needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def tokenizer(self) -> Path:
        """The path of the default model's tokenizer."""
        return self._folder / TOKENIZER_FILE

    def find(self, digest: str, precision: Precision) -> Path | None:
        """The graph built from these weights; None if it is missing, damaged or from another version of the builder."""
        path = self._path(digest, precision)
        checksum = _checksum_file(path)
        if not path.is_file() or not checksum.is_file() or checksum.read_text("ascii") != sha256_of(path):
            return None
        return path

    def has_tokenizer(self) -> bool:
        """True if the stored tokenizer exists and is intact."""
        return self.tokenizer.is_file() and sha256_of(self.tokenizer) == TOKENIZER_SHA256

    def build(self, files: ModelFiles, precision: Precision, progress: Progress | None = None) -> Path:
        """Builds the graph, stores it with the tokenizer, and returns its path.

        Raises:
            EmbeddingError: the model's files are not a readable model, or the folder is not writable.
        """
        if progress is not None:
            progress(f"building the {precision} graph (once, a few seconds)")
        path = self._path(files.digest, precision)
        try:
            write_atomically(path, _builder(files, precision))
            digest = sha256_of(path)
            write_atomically(_checksum_file(path), lambda file: file.write_text(digest, "ascii"))
            if not self.has_tokenizer():
                write_atomically(self.tokenizer, lambda file: shutil.copyfile(files.tokenizer, file))
        except OSError as error:
            raise EmbeddingError(f"The model's cache folder {self._folder} cannot be written: {error}.") from error
        return path

    def _path(self, digest: str, precision: Precision) -> Path:
        return self._folder / f"{digest[:16]}-v{BUILDER_VERSION}-{precision}.onnx"


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _builder(files: ModelFiles, precision: Precision) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        # Imported here, because only the first start builds a graph.
        import onnx

        from mnemon_server.embedding.graph import add_pooling, build_sentence_encoder
        from mnemon_server.embedding.quantize import quantize

        if files.is_graph:
            model = onnx.load(files.source)
            add_pooling(model)
        else:
            model = build_sentence_encoder(files.source)
        if precision == "int8":
            quantize(model)
        onnx.save(model, path)

    return write
