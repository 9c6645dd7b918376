"""The blocks of code in a document, and what it says that they print."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code, and its output if the document shows it."""

    language: str
    text: str
    printed: str | None

    def is_printed_by(self, output: str) -> bool:
        """Whether the output matches the document, where … matches anything and trailing blanks are ignored."""
        said = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        return re.fullmatch(".*".join(map(re.escape, (self.printed or "").split("…"))), said) is not None


def blocks(document: Path, languages: Collection[str]) -> list[Block]:
    """The blocks in these languages, in order."""
    found = _BLOCK.findall(document.read_text(encoding="utf-8"))
    return [Block(language, code, printed or None) for language, code, printed in found if language in languages]
