"""What the README shows runs as printed, against a real server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.server import server_process

PRINTED_ADDRESS = "127.0.0.1:50051"
EXAMPLE_LINES_MAX = 8


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"no {language} block"
    return found[1]


def test_the_example_fits_the_first_screen() -> None:
    assert len([line for line in _block("python").splitlines() if line]) <= EXAMPLE_LINES_MAX


@pytest.mark.weights
def test_the_python_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    example = _block("python")
    assert PRINTED_ADDRESS in example
    with server_process(tmp_path, "--embedding-model", "sentence-transformers/all-MiniLM-L6-v2") as server:
        program = example.replace(PRINTED_ADDRESS, server.address())
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.stderr) == (_block("text"), "")
