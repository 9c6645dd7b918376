"""Programs and pages that are made of stubs of other languages: each folder of tests/stubs has a script `build`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.rpc import status_pb2

from tests.support.repository import ROOT

NEEDED = {
    "typescript": ("node", "npm"),
    "browser": ("node", "npm"),
    "go": ("protoc", "protoc-gen-go", "protoc-gen-go-grpc", "go"),
    "cpp": ("protoc", "grpc_cpp_plugin", "g++", "make", "pkg-config"),
    "java": ("protoc", "grpc_java_plugin", "javac", "java"),
    "ruby": ("protoc", "grpc_ruby_plugin", "ruby"),
}
SKIPPED = 77
PROTOC = ROOT / ".venv/generate/bin/python"
BUILD_S = 1_500


def built(name: str) -> Path:
    """The folder of what was made. Skips if a compiler or a library is not available."""
    if missing := [each for each in NEEDED[name] if shutil.which(each) is None]:
        pytest.skip(f"{name} is not installed: there is no {', '.join(missing)}")
    out = ROOT / "build/clients" / name
    places = {
        "PROTOS": str(ROOT / "protos"),
        "GOOGLE_PROTOS": str(Path(status_pb2.__file__).parents[2]),
        "PROTOC": f"{PROTOC if PROTOC.exists() else sys.executable} -m grpc_tools.protoc",
    }
    command = [ROOT / "tests/stubs" / name / "build", out]
    done = subprocess.run(
        command, env={**os.environ, **places}, capture_output=True, text=True, timeout=BUILD_S, check=False
    )
    if done.returncode == SKIPPED:
        pytest.skip(f"{name}: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    return out
