"""Writes a unigram vocabulary in the form of the tokenizers library."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SPACE = "\u2581"


@dataclass(frozen=True, slots=True)
class UnigramVocabulary:
    """Pieces with the logarithms of their probabilities, and the ids of the special ones."""

    pieces: Sequence[tuple[str, float]]
    unknown: int
    begin: int
    end: int


def write_unigram_tokenizer(
    target: Path, vocabulary: UnigramVocabulary, normalizers: Sequence[Mapping[str, Any]]
) -> None:
    """Writes `tokenizer.json`. The same input gives the same bytes.

    The normalizers apply to characters before runs of spaces become one.
    """
    begin, end = ((vocabulary.pieces[number][0], number) for number in (vocabulary.begin, vocabulary.end))
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                *normalizers,
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                {"type": "Strip", "strip_left": True, "strip_right": True},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(begin[0]), {"Sequence": {"id": "A", "type_id": 0}}, _special(end[0])],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                token: {"id": token, "ids": [number], "tokens": [token]} for token, number in (begin, end)
            },
        },
        "decoder": None,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unknown,
            "vocab": [list(piece) for piece in vocabulary.pieces],
            "byte_fallback": False,
        },
    }
    target.write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")


def _special(token: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": 0}}
