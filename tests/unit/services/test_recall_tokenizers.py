"""The tokenizers that a server can count with."""

from pathlib import Path

import pytest
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError
from mnemon_server.domain.recall import Tokenizer
from mnemon_server.services.recall.tokenizers import PATTERNS, Tokenizers

from tests.support.tokenizers import write_tokenizer


@pytest.mark.parametrize("name", PATTERNS)
def test_the_encoding_of_a_file_counts_exactly(tmp_path: Path, name: Tokenizer) -> None:
    write_tokenizer(tmp_path, name)
    count = Tokenizers(tmp_path).count_of(name)

    assert count("the") == 1 and count("the the the") == 3
    assert count("the teapot") == len(["the", " tea", *"pot"])
    assert count("") == 0 and count("é") == 2


@pytest.mark.parametrize("name", PATTERNS)
def test_a_very_long_blank_counts_as_no_less_than_its_tokens(tmp_path: Path, name: Tokenizer) -> None:
    write_tokenizer(tmp_path, name)

    assert Tokenizers(tmp_path).count_of(name)(" " * 1_000_000) == 1_000_000


def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, Tokenizer.O200K)

    with pytest.raises(InvalidArgumentError, match="must be 'utf8/4': this server has no others"):
        Tokenizers().count_of(Tokenizer.O200K)
    with pytest.raises(InvalidArgumentError, match="must be 'utf8/4' or 'o200k_base': this server has no others"):
        Tokenizers(tmp_path).count_of(Tokenizer.CL100K)


def test_a_folder_without_an_encoding_is_refused_at_the_start_and_a_damaged_file_when_used(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigurationError, match=r"o200k_base\.tiktoken"):
        Tokenizers(tmp_path)
    (tmp_path / "o200k_base.tiktoken").write_bytes(b"no encoding")
    with pytest.raises(ConfigurationError, match=r"o200k_base\.tiktoken cannot be read"):
        Tokenizers(tmp_path).count_of(Tokenizer.O200K)
