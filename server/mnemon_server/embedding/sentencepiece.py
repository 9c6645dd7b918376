"""Converts a SentencePiece unigram model into the form of the tokenizers library.

The result gives the same tokens, with two exceptions: a run of characters outside the vocabulary is one unknown token
instead of one for each, and of two equally likely splits the other may be taken.
"""

import base64
import json
from pathlib import Path
from typing import Any

from mnemon_server.wire.sentencepiece import parse_model

UNKNOWN, BEGIN, END = range(3)
"""Ids of the special tokens, by SentencePiece's convention."""

_SPACE = "\u2581"


def convert_tokenizer(source: Path, target: Path) -> None:
    """Reads a SentencePiece model, and writes the equivalent `tokenizer.json`. The same input gives the same bytes.

    Raises:
        ValueError: the file is not a SentencePiece model.
    """
    model = parse_model(source.read_bytes())
    begin, end = model.pieces[BEGIN].piece, model.pieces[END].piece
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(model.normalizer.precompiled_charsmap).decode("ascii"),
                },
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
                {"type": "Strip", "strip_left": True, "strip_right": True},
            ],
        },
        "pre_tokenizer": {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(begin), {"Sequence": {"id": "A", "type_id": 0}}, _special(end)],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                token: {"id": token, "ids": [number], "tokens": [token]}
                for token, number in ((begin, BEGIN), (end, END))
            },
        },
        "decoder": None,
        "model": {
            "type": "Unigram",
            "unk_id": UNKNOWN,
            "vocab": [[piece.piece, piece.score] for piece in model.pieces],
            "byte_fallback": False,
        },
    }
    target.write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")


def _special(token: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": 0}}
