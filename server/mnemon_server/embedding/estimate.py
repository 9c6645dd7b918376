"""Estimates the tokens of a text for a model whose tokenizer is not known."""

import re
from collections.abc import Iterator

from mnemon_server.embedding.passages import Token

_WORD = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile("[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff]|[!-~]{1,4}|.{1,2}", re.DOTALL)
"""A CJK, Thai or Lao character, four characters of ASCII, or two others: rather too many tokens than too few."""


def estimated_tokens(text: str) -> list[Token]:
    """Tokens such as common vocabularies have them, rather too many than too few."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    for number, word in enumerate(_WORD.finditer(text)):
        for piece in _PIECE.finditer(text, word.start(), word.end()):
            yield Token(piece.start(), piece.end(), number)
