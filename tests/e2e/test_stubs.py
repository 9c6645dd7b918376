"""Stubs of other languages, made from the protos, speak to a real server: make test-stubs.

Each folder of tests/stubs holds a small program, and `build`, which makes it.
"""

import os
import re
import shutil
import socket
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
OVER_HTTP = [step if step != "bulk" else "bulk is refused" for step in STEPS]
IN_A_BROWSER = ["connect", "grpc-web", "connect in binary", "the package grpc-web", "EventSource"]
HTTP = ("--http-listen", "127.0.0.1:0")
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


@pytest.mark.stubs
@pytest.mark.timeout(BUILD_S + RUN_S)
@pytest.mark.parametrize("protocol", ["connect", "connect-json", "grpc-web"])
def test_node_does_the_same_over_http(protocol: str, tmp_path: Path) -> None:
    program = built("typescript")
    with server_process(tmp_path, "--knowledge-store-backend", "local", *HTTP) as server:
        command = [program, server.http_address(), protocol]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, OVER_HTTP), done.stderr


@pytest.mark.stubs
@pytest.mark.timeout(BUILD_S + RUN_S)
def test_a_page_of_another_origin_does_the_same_in_a_browser(tmp_path: Path) -> None:
    program = built("typescript").parent / "browser"
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    flags = ("--knowledge-store-backend", "local", *HTTP, "--http-origins", f"http://127.0.0.1:{port}")
    with server_process(tmp_path / "data", *flags) as server:
        command = [program, str(port), browser, tmp_path / "profile", server.http_address()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (0, IN_A_BROWSER), done.stderr


@pytest.mark.stubs
def test_a_browser_shows_a_method_of_the_api(tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("there is no chromium")
    with server_process(tmp_path / "data", "--knowledge-store-backend", "local", *HTTP) as server:
        page = f"http://{server.http_address()}/docs#MemoryService_SearchMemories"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        command = [browser, *flags, "--virtual-time-budget=10000", "--dump-dom", page]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    shown = re.search(
        r'<details id="MemoryService_SearchMemories"[^>]* open="">(.*?)</section>', done.stdout, re.DOTALL
    )
    assert shown, done.stdout[:2000] + done.stderr
    assert "POST /mnemon.v1.MemoryService/SearchMemories" in shown[1]
    assert "best first" in shown[1] and "What does she drink?" in shown[1]
