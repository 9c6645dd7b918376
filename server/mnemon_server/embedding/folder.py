"""Opens any model of which a folder holds the ONNX graph, the tokenizer and the configuration."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import EmbeddingModel, ModelOptions, Vectors
from mnemon_server.embedding.files import sha256_of
from mnemon_server.embedding.onnx import (
    INPUTS,
    INTEGERS,
    Encoder,
    OnnxEmbedder,
    Pool,
    TextTokenizer,
    first_token,
    last_token,
    mean_of_tokens,
)
from mnemon_server.embedding.onnx_messages import Model, other_files, read_model
from mnemon_server.embedding.onnx_session import open_session

# What the configuration files in a model's folder say, in the formats of sentence-transformers.


TOKENS_MAX = 512
"""Maximum number of tokens of a passage, also for models that read more: a vector says less about each part of a longer
text, and the time for it grows with the square of its length.
"""

POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODULES = frozenset({"Transformer", "Pooling", "Normalize"})
_LIMIT_FILES = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
    ("config.json", "max_position_embeddings"),
)
_NO_LIMIT = 1_000_000
"""Tokenizers that have no limit state one with thirty digits."""


@dataclass(frozen=True, slots=True)
class FolderSettings:
    """The settings of a model, read from its folder."""

    pooling: str | None
    """`cls`, `mean` or `lasttoken`; None if the folder does not say it."""
    sequence_max: int
    query_prefix: str
    passage_prefix: str
    dimension: int | None
    """Number of leading numbers of a vector that are kept; None keeps all."""
    padding_token: str | None


def read_folder_settings(folder: Path) -> FolderSettings:
    """Reads `modules.json`, the pooling's `config.json`, `sentence_bert_config.json`, `tokenizer_config.json`,
    `config.json` and `config_sentence_transformers.json`, both optional.

    Raises:
        EmbeddingError: a file cannot be read, or asks for what is not supported. The message names it.
    """
    pooling_folder = _pooling_folder(folder)
    general = _read(folder / "config_sentence_transformers.json")
    query, passage = _prompts(folder / "config_sentence_transformers.json", general)
    pooling = _pooling(pooling_folder / "config.json", prompts=bool(query or passage)) if pooling_folder else None
    padding = _read(folder / "tokenizer_config.json").get("pad_token")
    return FolderSettings(
        pooling=pooling,
        sequence_max=_sequence_max(folder),
        query_prefix=query,
        passage_prefix=passage,
        dimension=_whole(folder / "config_sentence_transformers.json", general, "truncate_dim"),
        # The token alone, or with its properties.
        padding_token=padding.get("content") if isinstance(padding, dict) else padding,
    )


def _pooling_folder(folder: Path) -> Path | None:
    path = folder / "modules.json"
    modules = _read_any(path) if path.is_file() else []
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise EmbeddingError(f"{path} must hold a list of modules.")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if other := [kind for kind in kinds if kind not in _MODULES]:
        raise EmbeddingError(
            f"{path} has the module {other[0]!r}, which is not supported. The modules of a model must be Transformer, "
            "Pooling and Normalize, or its graph must have the output sentence_embedding and this file be removed."
        )
    places = [module.get("path", "") for module, kind in zip(modules, kinds, strict=True) if kind == "Pooling"]
    return folder / str(places[0]) if places else None


def _pooling(path: Path, *, prompts: bool) -> str:
    if not path.is_file():
        raise EmbeddingError(f"{path} is missing, although modules.json names it. Copy it from the original model.")
    config = _read(path)
    modes = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if isinstance(named := config.get("pooling_mode"), str):
        modes.append(next((name for name, mode in POOLING_MODES.items() if mode == named), named))
    if len(modes) != 1 or modes[0] not in POOLING_MODES:
        raise EmbeddingError(
            f"{path} sets {', '.join(modes) or 'no pooling mode'}; it must set exactly one of "
            f"{', '.join(POOLING_MODES)} to true."
        )
    if prompts and config.get("include_prompt") is False:
        raise EmbeddingError(f"{path} sets include_prompt to false, which is not supported together with prompts.")
    return POOLING_MODES[modes[0]]


def _sequence_max(folder: Path) -> int:
    for file, name in _LIMIT_FILES:
        limit = _whole(folder / file, _read(folder / file), name)
        if limit is not None and limit < _NO_LIMIT:
            return min(limit, TOKENS_MAX)
    return TOKENS_MAX


def _prompts(path: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    """The prefixes of queries and of passages."""
    prompts: Any = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        raise EmbeddingError(f"{path}: prompts must map names to texts.")
    default: str = prompts.get(config.get("default_prompt_name"), "")

    def prompt(names: Sequence[str]) -> str:
        return next((prompts[name] for name in names if name in prompts), default)

    return prompt(("query",)), prompt(("passage", "document", "corpus"))


def _whole(path: Path, config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    if value is None:
        return None
    # Some files have 512.0, or 1e30.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
        raise EmbeddingError(f"{path}: {name} is {value!r}; it must be a whole number of at least 1.")
    return int(value)


def _read(path: Path) -> Mapping[str, Any]:
    """The object in a file; empty if the file does not exist."""
    value = _read_any(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise EmbeddingError(f"{path} must hold a JSON object.")
    return value


def _read_any(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EmbeddingError(f"{path} is not readable JSON: {error}") from error


GRAPHS = ("onnx/model.onnx", "model.onnx")
_SENTENCE_OUTPUT = "sentence_embedding"
_TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
_POOLS: dict[str, Pool] = {"cls": first_token, "mean": mean_of_tokens, "lasttoken": last_token}
_TEXT_RANK, _TOKEN_RANK = 2, 3
_PASSAGE_TOKENS_MIN = 32
_TRIAL_TEXTS = ("a", "An unusual 12-word text, with numbers: 3.14159, and a question, isn't it?")
_SAME_COSINE = 0.9999
"""Below it, the vector of a text depends on the others of a batch."""

_REVISION_LENGTH = 16
_PARSED_BYTES_MAX = 256 << 20


def open_folder(model: str, options: ModelOptions, *, threads: int = 0) -> OnnxEmbedder:
    """Opens the model in a folder, and tries it on two texts. `options` replace the folder's configuration.

    `model` may also be the path of one of several graphs in the folder, such as `folder/onnx/model_quantized.onnx`.

    Raises:
        EmbeddingError: a file is missing, or not as it must be. The message names it.
    """
    folder, graph = _find(Path(model).expanduser().absolute())
    settings = _with_options(read_folder_settings(folder), options)
    tokenizer = _open_tokenizer(folder / "tokenizer.json", settings)
    session = _open_session(graph)
    padding = tokenizer.id_of(settings.padding_token) if settings.padding_token else None
    output, pool = _output(session, settings, graph, folder)
    encoder = Encoder(session, output, tokenizer.padding_id if padding is None else padding, pool, settings.dimension)
    vectors, differs = _try(encoder, tokenizer, graph)
    # Without the weights in other files. A large graph holds all of them itself.
    parsed = read_model(graph.read_bytes()) if graph.stat().st_size <= _PARSED_BYTES_MAX else None
    if settings.dimension is not None and vectors.shape[1] < settings.dimension:
        raise EmbeddingError(
            f"{graph} makes vectors of {vectors.shape[1]} numbers, of which {settings.dimension} cannot be kept; set "
            "embedding_dimensions (or truncate_dim in config_sentence_transformers.json) to at most that."
        )
    files = [
        graph,
        *(graph.parent / name for name in (other_files(parsed) if parsed else ())),
        folder / "tokenizer.json",
    ]
    recorded = EmbeddingModel(
        name=folder.name,
        revision=_digest(files, settings, output)[:_REVISION_LENGTH],
        precision=graph.stem,
        dimension=int(vectors.shape[1]),
        tokens_max=_tokens_max(tokenizer, settings, folder),
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
    )
    one_by_one = differs or _scales_together(parsed)
    return OnnxEmbedder(encoder, tokenizer, recorded, threads=threads, one_by_one=one_by_one)


def _find(path: Path) -> tuple[Path, Path]:
    """The folder and its graph."""
    if path.suffix == ".onnx":
        if not path.is_file():
            raise EmbeddingError(f"The embedding model {path} does not exist.")
        return (path.parent.parent if path.parent.name == "onnx" else path.parent), path
    if not path.is_dir():
        raise EmbeddingError(f"The embedding model {path} does not exist; it must be a folder with model.onnx.")
    for name in GRAPHS:
        if (path / name).is_file():
            return path, path / name
    others = sorted([*path.glob("*.onnx"), *path.glob("onnx/*.onnx")])
    advice = (
        f"To use another one, set embedding_model to its path, such as {others[0]}." if others else
        "Export the model to ONNX, for instance with `optimum-cli export onnx`."
    )  # fmt: skip
    raise EmbeddingError(f"The folder {path} has neither {' nor '.join(GRAPHS)}. {advice}")


def _with_options(settings: FolderSettings, options: ModelOptions) -> FolderSettings:
    chosen = {name: value for name, value in asdict(options).items() if value is not None}
    return replace(settings, **chosen)


def _open_tokenizer(path: Path, settings: FolderSettings) -> TextTokenizer:
    if not path.is_file():
        raise EmbeddingError(
            f"{path} is missing. The tokenizer must be in the format of the tokenizers library; "
            "`AutoTokenizer.from_pretrained(model).save_pretrained(folder)` writes it."
        )
    try:
        return TextTokenizer(path, settings.sequence_max)
    except Exception as error:  # the library raises plain exceptions
        raise EmbeddingError(f"{path} cannot be read as a tokenizer: {error}") from error


def _open_session(graph: Path) -> ort.InferenceSession:
    try:
        session = open_session(graph)
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise EmbeddingError(f"ONNX Runtime {ort.__version__} cannot run {graph}: {error}") from error
    names = {value.name for value in session.get_inputs()}
    if "input_ids" not in names or not names <= INPUTS.keys():
        raise EmbeddingError(
            f"{graph} has the inputs {', '.join(sorted(names))}; they must be input_ids and, if needed, "
            f"{', '.join(name for name in INPUTS if name != 'input_ids')}."
        )
    for value in session.get_inputs():
        if value.type not in INTEGERS:
            raise EmbeddingError(f"The input {value.name} of {graph} is {value.type}; it must be of whole numbers.")
    return session


def _output(
    session: ort.InferenceSession, settings: FolderSettings, graph: Path, folder: Path
) -> tuple[str, Pool | None]:
    """The output that is read, and how one vector is made of the tokens' vectors."""
    outputs = {value.name: len(value.shape) for value in session.get_outputs()}
    name = next((name for name in (_SENTENCE_OUTPUT, *_TOKEN_OUTPUTS) if name in outputs), None)
    if name is None and len(outputs) == 1:
        (name,) = outputs
    if name is None or outputs[name] not in (_TEXT_RANK, _TOKEN_RANK):
        raise EmbeddingError(
            f"{graph} has the outputs {', '.join(f'{name} of {rank} axes' for name, rank in outputs.items())}; it must "
            f"have {_SENTENCE_OUTPUT} (text, number) or {' or '.join(_TOKEN_OUTPUTS)} (text, token, number)."
        )
    if outputs[name] == _TEXT_RANK:
        return name, None
    if settings.pooling is None:
        raise EmbeddingError(
            f"{folder / 'modules.json'} is missing or names no module Pooling, so it is not known how the vectors of "
            "tokens become that of a text. Copy modules.json and 1_Pooling/config.json from the original model."
        )
    return name, _POOLS[settings.pooling]


def _try(encoder: Encoder, tokenizer: TextTokenizer, graph: Path) -> tuple[Vectors, bool]:
    """The vectors of two texts, and whether they differ if the texts are computed together."""
    tokens = [tokenizer.cut(encoding) for encoding in tokenizer.encode(_TRIAL_TEXTS)]
    try:
        alone = np.concatenate([encoder.run([each]) for each in tokens])
        together = encoder.run(tokens)
    except Exception as error:  # ONNX Runtime's errors have no common class
        raise EmbeddingError(f"{graph} failed on a first text: {error}") from error
    if alone.ndim != _TEXT_RANK or alone.shape != together.shape:
        raise EmbeddingError(f"{graph} makes arrays of shape {alone.shape}; they must be (text, number).")
    return alone, bool(np.einsum("ij,ij->i", alone, together).min() < _SAME_COSINE)


def _tokens_max(tokenizer: TextTokenizer, settings: FolderSettings, folder: Path) -> int:
    (prefix,) = tokenizer.encode([settings.passage_prefix])
    left = settings.sequence_max - max(len(prefix.ids), tokenizer.special_tokens)
    if left < _PASSAGE_TOKENS_MIN:
        raise EmbeddingError(
            f"The model in {folder} reads {settings.sequence_max} tokens, of which the passage prefix leaves "
            f"{left} for a text; there must be at least {_PASSAGE_TOKENS_MIN}. Check max_seq_length in "
            "sentence_bert_config.json and the prompts in config_sentence_transformers.json."
        )
    return left


def _digest(files: Sequence[Path], settings: FolderSettings, output: str) -> str:
    """A digest of all that determines the vectors of stored texts."""
    used = {"pooling": settings.pooling, "sequence_max": settings.sequence_max, "output": output}
    used["passage_prefix"] = settings.passage_prefix
    parts = [*(sha256_of(file) for file in files), json.dumps(used, sort_keys=True)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _scales_together(model: Model | None) -> bool:
    """Whether a graph rounds numbers by a scale of all texts of a batch."""
    return model is not None and any(node.op_type.startswith("DynamicQuantize") for node in model.graph.node)
