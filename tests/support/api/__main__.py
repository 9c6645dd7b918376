"""Writes the OpenAPI document and the reference: python -m tests.support.api IMAGE [--check]

The image is the output of `buf build --as-file-descriptor-set`. `--check` writes nothing, and fails if a file differs
from what would be written.
"""

import sys
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from pathlib import Path

from openapi_spec_validator import validate

from tests.support.api import openapi, reference
from tests.support.api.comments import comments_in
from tests.support.api.examples import EXAMPLES
from tests.support.api.forms import REQUESTS, WORDS
from tests.support.repository import ROOT

OPENAPI = ROOT / "server/mnemon_server/transport/http/pages/openapi.json"
REFERENCE = ROOT / "protos/reference"
SHOWN_LINES_MAX = 40


def files(image: Path) -> dict[Path, str]:
    """What belongs into each file."""
    comments = comments_in(image)
    document = openapi.document(comments, {**REQUESTS, **{each.method: each.request for each in EXAMPLES}}, WORDS)
    validate(document)
    pages = {REFERENCE / name: text for name, text in reference.pages(comments).items()}
    return {OPENAPI: openapi.text_of(document), **pages}


def differences(expected: dict[Path, str]) -> Iterator[str]:
    """How the files differ from that, line by line."""
    for file in sorted({*expected, *REFERENCE.glob("*")}):
        found = file.read_text(encoding="utf-8") if file.exists() else ""
        sides = found.splitlines(keepends=True), expected.get(file, "").splitlines(keepends=True)
        yield from unified_diff(*sides, fromfile=str(file), tofile="what `make generate` writes")


def main() -> None:
    """Writes the files, or compares them."""
    expected = files(Path(sys.argv[1]))
    if "--check" in sys.argv:
        found = list(islice(differences(expected), SHOWN_LINES_MAX))
        sys.exit("".join((*found, "run `make generate`\n")) if found else 0)
    for file in set(REFERENCE.glob("*")) - expected.keys():
        file.unlink()
    REFERENCE.mkdir(exist_ok=True)
    for file, text in expected.items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
