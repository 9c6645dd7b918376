"""Texts as tokens, and as many of them as a model reads."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.coverage import read_scripts

Tokens = NDArray[np.int32]


UNKNOWN_TOKENS = ("[UNK]", "<unk>")
"""Names of the token for characters outside the vocabulary, of both kinds of vocabularies."""

_EMPTY = (0,)
"""The token for an empty text if the tokenizer adds no special tokens: a model cannot read nothing."""


class TextTokenizer:
    """A `tokenizer.json`, without its own truncation and padding. Plain exceptions are raised if it cannot be read.

    The model reads `sequence_max` tokens of one text, including special tokens.
    """

    def __init__(self, path: Path, sequence_max: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        padding = self._tokenizer.padding or {}
        self.padding_id: int = padding.get("pad_id", 0)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._unknown = {self._tokenizer.token_to_id(name) for name in UNKNOWN_TOKENS}
        self._sequence_max = sequence_max
        special = self._tokenizer.encode("a").special_tokens_mask
        self.special_tokens = sum(special)
        """Number of tokens that are added to each text."""
        self._closing = special[::-1].index(0) if 0 in special else 0
        """How many of these follow the text."""

    def encode(self, texts: Sequence[str], *, offsets: bool = False) -> list[Encoding]:
        """The encoding of each text. Without `offsets`, that is faster.

        Raises:
            EmbeddingError: the tokenizer failed.
        """
        encode = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        try:
            return encode([valid_text(text) for text in texts])
        except Exception as error:  # the library raises plain exceptions
            raise EmbeddingError(f"The tokenizer failed: {error}") from error

    def cut(self, encoding: Encoding) -> Tokens:
        """The ids that the model reads. A long text is truncated before its closing special tokens."""
        ids: Sequence[int] = encoding.ids or _EMPTY
        if len(ids) > self._sequence_max:
            kept = self._sequence_max - self._closing
            ids = [*ids[:kept], *ids[len(ids) - self._closing :]]
        return np.array(ids, np.int32)

    def id_of(self, token: str) -> int | None:
        """The id of a token, given as text."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def is_known(self, token: int) -> bool:
        """Whether a token is of the vocabulary, and does not stand for something that is not."""
        return token not in self._unknown

    @cached_property
    def read_scripts(self) -> frozenset[str]:
        """The scripts of which the vocabulary has more than single letters."""
        return read_scripts(self._tokenizer)


def valid_text(text: str) -> str:
    """The text without unpaired surrogates, which tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
