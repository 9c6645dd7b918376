"""Stubs of other languages, made from the protos, speak to a real server: make test-stubs.

Each folder of tests/stubs holds a small program, and `build`, which makes it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.rpc import status_pb2

from tests.support.repository import ROOT
from tests.support.server import server_process

NEEDED = {
    "typescript": ("node", "npm"),
    "go": ("protoc", "protoc-gen-go", "protoc-gen-go-grpc", "go"),
    "cpp": ("protoc", "grpc_cpp_plugin", "g++", "make", "pkg-config"),
    "java": ("protoc", "grpc_java_plugin", "javac", "java"),
    "ruby": ("protoc", "grpc_ruby_plugin", "ruby"),
}
STEPS = ["create", "search", "bulk", "error details", "deadline", "watch", "cancel", "resume"]
SKIPPED = 77
PROTOC = ROOT / ".venv/generate/bin/python"
RUN_S, BUILD_S = 60, 1_500


def built(language: str) -> Path:
    """The program of a language. Skips if its compiler or a library is not available."""
    if missing := [name for name in NEEDED[language] if shutil.which(name) is None]:
        pytest.skip(f"{language} is not installed: there is no {', '.join(missing)}")
    out = ROOT / "build/clients" / language
    places = {
        "PROTOS": str(ROOT / "protos"),
        "GOOGLE_PROTOS": str(Path(status_pb2.__file__).parents[2]),
        "PROTOC": f"{PROTOC if PROTOC.exists() else sys.executable} -m grpc_tools.protoc",
    }
    command = [ROOT / "tests/stubs" / language / "build", out]
    done = subprocess.run(
        command, env={**os.environ, **places}, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode == SKIPPED:
        pytest.skip(f"{language}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "stub"


@pytest.mark.timeout(BUILD_S + RUN_S)
@pytest.mark.parametrize(
    "language", [each if each == "typescript" else pytest.param(each, marks=pytest.mark.stubs) for each in NEEDED]
)
def test_stubs_of_another_language_do_all_that_ours_do(language: str, tmp_path: Path) -> None:
    program = built(language)
    with server_process(tmp_path, "--knowledge-store-backend", "local") as server:
        done = subprocess.run([program, server.address()], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, STEPS), done.stderr
