"""What the configuration files in a model's folder say, in the formats of sentence-transformers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemon_server.domain.errors import EmbeddingError

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
    """How a model is used, as its folder says."""

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
    `config.json` and `config_sentence_transformers.json`, as far as they are there.

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
    """What comes before a query, and before a passage."""
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
