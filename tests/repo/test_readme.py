"""What the README shows runs as printed, against a real server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.server import server_process

PRINTED_ADDRESS = "127.0.0.1:50051"
EXAMPLE_LINES_MAX = 8
LOOP_LINES_MAX = 16
"""Of an example with a loop over what a model says, all lines of it."""
SCRIPTED_MODEL = ROOT / "tests" / "support" / "scripted_model"
"""Stands in for a vendor's package, so that no example needs a key or a network."""


def _examples() -> list[tuple[str, str]]:
    """Every Python block with the text block behind it: what it prints."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(found) == readme.count("```python\n") > 0, "a Python block without what it prints"
    return found


def test_every_example_is_short() -> None:
    for program, _ in _examples():
        most = LOOP_LINES_MAX if "while " in program else EXAMPLE_LINES_MAX
        assert len([line for line in program.splitlines() if line]) <= most


@pytest.mark.weights
@pytest.mark.parametrize("number", range(len(_examples())))
def test_a_python_example_prints_what_the_readme_says(tmp_path: Path, number: int) -> None:
    program, printed = _examples()[number]
    assert PRINTED_ADDRESS in program
    with server_process(tmp_path, "--embedding-model", "sentence-transformers/all-MiniLM-L6-v2") as server:
        program = program.replace(PRINTED_ADDRESS, server.address())
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": str(SCRIPTED_MODEL)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert (run.stdout, run.stderr) == (printed, "")
