"""protos/TYPESCRIPT.md, step by step, as printed, against a real server."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.server import server_process

DOCUMENT = (ROOT / "protos/TYPESCRIPT.md").read_text("utf-8")
PRINTED_AT = "127.0.0.1:50051"
STEP_S = 240


@pytest.mark.stubs
@pytest.mark.timeout(3 * STEP_S)
def test_the_recipe_prints_what_it_says(tmp_path: Path) -> None:
    install, build, said = _blocks("sh")[0], _blocks("sh")[1], _blocks("text")[0]
    _ran(install, tmp_path, or_skip="npm cannot install what the recipe names")
    with server_process(tmp_path / "data", "--knowledge-store-backend", "local") as server:
        for name, text in re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)```", DOCUMENT, re.DOTALL | re.MULTILINE):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace(PRINTED_AT, server.address()), "utf-8")
        assert _ran(build, tmp_path) == said


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def _ran(commands: str, folder: Path, *, or_skip: str = "") -> str:
    environment = {**os.environ, "MNEMON": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    if or_skip and done.returncode:
        pytest.skip(or_skip)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
