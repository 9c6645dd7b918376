"""How many tokens a text has, by the tokenizers that this server can count with. Nothing is ever downloaded.

The encodings of OpenAI's models are counted by tiktoken, if it is installed, with the files in the operator's folder.
"""

import importlib
import re
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import Any

from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError
from mnemon_server.domain.recall import Tokenizer

Count = Callable[[str], int]

_WORD = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
PATTERNS = {
    Tokenizer.CL100K: (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    ),
    Tokenizer.O200K: (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_WORD}|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_WORD}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""How each encoding splits a text before it looks up the parts; published with its file."""
_LONG_BLANK = re.compile(r"\s{1000}")
"""The patterns need more and more stack for such a run, until the library gives up."""


def utf8_tokens(text: str) -> int:
    """See Tokenizer.UTF8."""
    return ceil(len(text.encode()) / 4)


class Tokenizers:
    """The tokenizers that a server can count with."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` has files such as o200k_base.tiktoken, as OpenAI publishes them.

        Raises ConfigurationError if it is set and none of them could be used.
        """
        self._folder = folder
        if folder is not None and self.available == (Tokenizer.UTF8,):
            files = " or ".join(f"{name}.tiktoken" for name in PATTERNS)
            wanted = "tiktoken, of mnemon-server[tokenizers]," if find_spec("tiktoken") is None else f"{files} there"
            raise ConfigurationError(f"tokenizer_dir {folder}: it needs {wanted} to count tokens")

    @property
    def available(self) -> tuple[Tokenizer, ...]:
        """The names that `count_of` takes."""
        if self._folder is None or find_spec("tiktoken") is None:
            return (Tokenizer.UTF8,)
        return (Tokenizer.UTF8, *(name for name in PATTERNS if self._file(name).is_file()))

    def count_of(self, tokenizer: Tokenizer) -> Count:
        """The function that counts. Blocks when an encoding is first used, to read its file.

        Raises:
            InvalidArgumentError: this server does not have it; the message lists what it has.
            ConfigurationError: its file cannot be read.
        """
        if tokenizer is Tokenizer.UTF8:
            return utf8_tokens
        if tokenizer not in (known := self.available):
            names = " or ".join(repr(str(each)) for each in known)
            raise InvalidArgumentError.of("tokenizer", f"must be {names}: this server has no others")
        return _count(self._file(tokenizer), tokenizer)

    def _file(self, tokenizer: Tokenizer) -> Path:
        assert self._folder is not None  # noqa: S101 - without a folder, none of them is available
        return self._folder / f"{tokenizer}.tiktoken"


@lru_cache(maxsize=len(PATTERNS))
def _count(file: Path, tokenizer: Tokenizer) -> Count:
    try:
        lines = (line.split() for line in file.read_bytes().splitlines() if line)
        ranks = {b64decode(token): int(rank) for token, rank in lines}
        encoding: Any = importlib.import_module("tiktoken").Encoding(
            tokenizer, pat_str=PATTERNS[tokenizer], mergeable_ranks=ranks, special_tokens={}
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"tokenizer_dir: {file.name} cannot be read: {error}") from error

    def count(text: str) -> int:
        # No text has more tokens than bytes.
        return len(text.encode()) if _LONG_BLANK.search(text) else len(encoding.encode_ordinary(text))

    return count
