"""Generates the Python client's blocking half from its asyncio half: python -m tests.support.sync_client [--check]

Each module of `_async/` becomes the module of the same name in `_sync/`. Those in BY_HAND are written twice, because
one uses threads and the other tasks. `--check` writes nothing, and fails if a file differs from what would be
written.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from tests.support.repository import GENERATED_FROM, ROOT

CLIENT = ROOT / "clients/python/mnemon"
SOURCE, TARGET = CLIENT / "_async", CLIENT / "_sync"
BY_HAND = {"__init__.py", "bulk.py", "watch.py"}
HEADER = GENERATED_FROM + "_async/{name} by `make generate`: change that file instead.\n"

SUBSTITUTIONS = [
    # Words of docstrings.
    (r"\bThe asyncio client\b", "The blocking client"),
    (r"\bfor one event loop at a time\b", "safe to share between threads"),
    (r"\ban async iterator\b", "an iterator"),
    # Types.
    (r"\bIterable\[(.+)\] \| AsyncIterable\[\1\]", r"Iterable[\1]"),
    (r"\bAsyncGenerator\[(.+), None\]", r"Generator[\1, None, None]"),
    (r"\bgrpc\.aio\.AioRpcError\b", "grpc.RpcError"),
    (r"\bgrpc\.aio\.", "grpc."),
    # Statements.
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\basyncio\.to_thread\(([\w.]+)(, )?", r"\1("),
    (r"\baclosing\b", "closing"),
    (r"\bfor (\w+) in (.+):\n +yield \1\n", r"yield from \2\n"),
    # Names.
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\bmnemon\._async\b", "mnemon._sync"),
    (r"\bAsync([A-Z]\w+)", r"\1"),
]


def generated() -> Iterator[tuple[Path, str]]:
    """The files that belong in `_sync/`, with their content."""
    for source in sorted(SOURCE.glob("*.py")):
        if source.name not in BY_HAND:
            target = TARGET / source.name
            yield target, HEADER.format(name=source.name) + _formatted(_blocking(source.read_text("utf-8")), target)


def differences() -> Iterator[str]:
    """The differences between `_sync/` and the generated code, as lines of diffs."""
    expected = dict(generated())
    for file in sorted(expected.keys() | _present()):
        stands = file.read_text("utf-8") if file.exists() else ""
        name = str(file.relative_to(ROOT))
        yield from unified_diff(
            stands.splitlines(keepends=True), expected.get(file, "").splitlines(keepends=True), name, "make generate"
        )


def _present() -> set[Path]:
    return {file for file in TARGET.glob("*.py") if file.name not in BY_HAND}


def _blocking(text: str) -> str:
    for pattern, replacement in SUBSTITUTIONS:
        text = re.sub(pattern, replacement, text)
    return text


def _formatted(text: str, target: Path) -> str:
    """The text as ruff formats it at the target's path, without unused imports."""
    for command in (["check", "--fix-only", "--select", "F401,I"], ["format"]):
        call = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(target), "-"]
        text = subprocess.run(call, input=text, capture_output=True, check=True, text=True, cwd=ROOT).stdout
    return text


def main() -> None:
    """Writes the files, or compares them."""
    if "--check" in sys.argv[1:]:
        if found := list(differences()):
            sys.exit("".join(found))
        return
    expected = dict(generated())
    for file, content in expected.items():
        file.write_text(content, encoding="utf-8")
    for file in _present() - expected.keys():
        file.unlink()


if __name__ == "__main__":
    main()
