"""A folder of built graphs with their checksums. A graph is valid for one builder version and one set of weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.built_in import BuiltInModel
from mnemon_server.embedding.files import sha256_of, write_atomically
from mnemon_server.embedding.onnx_messages import other_files, read_model
from mnemon_server.embedding.weights import ModelFiles, Progress

Precision = Literal["int8", "fp32"]


class GraphCache:
    """A folder with graphs of a built-in model and its tokenizer, which together are all that a start needs."""

    def __init__(self, folder: Path, model: BuiltInModel) -> None:
        self._folder, self._model = folder, model

    @property
    def tokenizer(self) -> Path:
        """The path of the model's tokenizer."""
        return self._folder / self._model.cached_tokenizer.name

    def find(self, digest: str, precision: Precision) -> Path | None:
        """The graph built from these weights; None if it is missing, damaged or from another version of the builder."""
        path = self._path(digest, precision)
        checksum = _checksum_file(path)
        if not path.is_file() or not checksum.is_file() or checksum.read_text("ascii") != sha256_of(path):
            return None
        return path

    def has_tokenizer(self) -> bool:
        """True if the stored tokenizer exists and is intact."""
        return self._model.cached_tokenizer.is_intact(self._folder)

    def build(self, files: ModelFiles, precision: Precision, progress: Progress | None = None) -> Path:
        """Builds the graph, stores it with the tokenizer, and returns its path.

        Raises:
            EmbeddingError: the model's files are not a readable model, or the folder is not writable.
        """
        if progress is not None:
            progress(f"building the {precision} graph (once, a few seconds)")
        path = self._path(files.digest, precision)
        try:
            write_atomically(path, _builder(self._model, files, precision))
            digest = sha256_of(path)
            write_atomically(_checksum_file(path), lambda file: file.write_text(digest, "ascii"))
            if not self.has_tokenizer():
                write_atomically(self.tokenizer, lambda file: self._model.convert_tokenizer(files.tokenizer, file))
        except OSError as error:
            raise EmbeddingError(
                f"The model's cache folder {self._folder} cannot be written: {error}; set model_cache_dir to another."
            ) from error
        return path

    def _path(self, digest: str, precision: Precision) -> Path:
        return self._folder / f"{digest[:16]}-v{self._model.builder_version}-{precision}.onnx"


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _builder(built_in: BuiltInModel, files: ModelFiles, precision: Precision) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        # Imported here, because only the first start builds a graph.
        from mnemon_server.embedding.graph import add_pooling
        from mnemon_server.embedding.quantize import quantize

        if files.is_graph:
            model = read_model(files.source.read_bytes())
            if others := other_files(model):
                raise EmbeddingError(f"{files.source} keeps weights in {', '.join(others)}; export them into one file.")
            add_pooling(model)
        else:
            model = built_in.build_graph(files.source)
        if precision == "int8":
            quantize(model)
        path.write_bytes(model.SerializeToString())

    return write
