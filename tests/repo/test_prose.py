"""The command that chooses texts to be read aloud."""

from tests.repo.prose import KINDS, chosen

PROSE = ("A paragraph of some length. " * 4).strip()
SOURCE = """\
x = 1  # noqa: F1
# One line,
# and another.
raise InvalidArgumentError.of("field", f"must be {x} or 2")
"""
DOCUMENT = f"# Title\n\n| a | table |\n\n    make test\n\n{PROSE}\n"


def test_texts_are_found_without_what_is_no_prose() -> None:
    files = {"server/mnemon_server/a.py": SOURCE, "README.md": DOCUMENT}
    assert list(KINDS["comments"](files)) == ["One line, and another."]
    assert list(KINDS["errors"](files)) == ["must be {x} or 2"]
    assert list(KINDS["paragraphs"](files)) == [PROSE]


def test_the_same_seed_chooses_the_same_texts() -> None:
    files = {"a.py": "\n\n".join(f"# Comment {number}." for number in range(40))}
    first, again, other = (chosen(files, "comments", seed, 10) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) == 10
