"""A folder with a small tokenizer in the form of a large one."""

from base64 import b64encode
from pathlib import Path

PARTS = ("th", "the", " the", " t", " te", " tea")


def write_tokenizer(folder: Path, name: str) -> None:
    """Writes an encoding of all bytes and PARTS, each of which is one token."""
    tokens = [*(bytes([number]) for number in range(256)), *(part.encode() for part in PARTS)]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    (folder / f"{name}.tiktoken").write_text("".join(lines), encoding="ascii")
