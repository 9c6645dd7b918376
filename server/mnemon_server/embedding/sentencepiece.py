"""Converts a SentencePiece unigram model into the form of the tokenizers library.

The result gives the same tokens, with two exceptions: a run of characters outside the vocabulary is one unknown token
instead of one for each, and of two equally likely splits the other may be taken.
"""

import base64
from pathlib import Path

from mnemon_server.embedding.unigram import UnigramVocabulary, write_unigram_tokenizer
from mnemon_server.wire.sentencepiece import parse_model

UNKNOWN, BEGIN, END = range(3)
"""Ids of the special tokens, by SentencePiece's convention."""


def convert_tokenizer(source: Path, target: Path) -> None:
    """Reads a SentencePiece model, and writes the equivalent `tokenizer.json`. The same input gives the same bytes.

    Raises:
        ValueError: the file is not a SentencePiece model.
    """
    model = parse_model(source.read_bytes())
    vocabulary = UnigramVocabulary([(piece.piece, piece.score) for piece in model.pieces], UNKNOWN, BEGIN, END)
    charsmap = base64.b64encode(model.normalizer.precompiled_charsmap).decode("ascii")
    write_unigram_tokenizer(target, vocabulary, [{"type": "Precompiled", "precompiled_charsmap": charsmap}])
