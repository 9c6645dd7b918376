"""Stubs of other languages, made from the protos, speak to a real server: make test-stubs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.browser import FLAGS, PAGE_S, browsing, chromium, website
from tests.support.repository import ROOT
from tests.support.server import server_process, wait_until
from tests.support.stubs import BUILD_S, built

LANGUAGES = ("typescript", "go", "cpp", "java", "ruby")
STEPS = ["create", "search", "bulk", "error details", "deadline", "watch", "cancel", "resume"]
OVER_HTTP = [step if step != "bulk" else "bulk is refused" for step in STEPS]
IN_A_BROWSER = ["connect", "grpc-web", "connect in binary", "the package grpc-web", "EventSource", "end"]
LOCAL = ("--knowledge-store-backend", "local")
HTTP = (*LOCAL, "--http-listen", "127.0.0.1:0")
RUN_S = 60


def ran(*command: str | Path) -> tuple[int, list[str], str]:
    """The exit code, the lines and the complaints of a program."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.stubs
@pytest.mark.timeout(BUILD_S + RUN_S)
@pytest.mark.parametrize("language", LANGUAGES)
def test_stubs_of_another_language_do_all_that_ours_do(language: str, tmp_path: Path) -> None:
    program = built(language) / "stub"
    with server_process(tmp_path, *LOCAL) as server:
        code, lines, complaints = ran(program, server.address())
    assert (code, lines) == (0, STEPS), complaints


@pytest.mark.stubs
@pytest.mark.timeout(BUILD_S + RUN_S)
@pytest.mark.parametrize("protocol", ["connect", "connect-json", "grpc-web"])
def test_node_does_the_same_over_http(protocol: str, tmp_path: Path) -> None:
    program = built("typescript") / "stub"
    with server_process(tmp_path, *HTTP) as server:
        code, lines, complaints = ran(program, server.http_address(), protocol)
    assert (code, lines) == (0, OVER_HTTP), complaints


@pytest.mark.stubs
@pytest.mark.timeout(BUILD_S + PAGE_S)
def test_a_page_of_another_origin_does_the_same_in_a_browser(tmp_path: Path) -> None:
    chromium()
    with (
        website(built("browser") / "clients.js") as site,
        server_process(tmp_path / "data", *HTTP, "--http-origins", site.origin) as server,
        browsing(site, tmp_path, server=f"http://{server.http_address()}"),
    ):
        wait_until(site.has_ended, PAGE_S)
    assert site.told == IN_A_BROWSER


@pytest.mark.stubs
def test_a_browser_shows_a_method_of_the_api(tmp_path: Path) -> None:
    with server_process(tmp_path / "data", *HTTP) as server:
        page = f"http://{server.http_address()}/docs#MemoryService_SearchMemories"
        flags = [*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--dump-dom"]
        _, lines, complaints = ran(chromium(), *flags, page)
    dom = "\n".join(lines)
    shown = re.search(r'<details id="MemoryService_SearchMemories"[^>]* open="">(.*?)</section>', dom, re.DOTALL)
    assert shown, dom[:2000] + complaints
    assert "POST /mnemon.v1.MemoryService/SearchMemories" in shown[1]
    assert "best first" in shown[1] and "What tea does she drink?" in shown[1]


@pytest.mark.stubs
def test_the_template_of_buf_writes_stubs_of_each_language(tmp_path: Path) -> None:
    plugins = (
        "protoc",
        "protoc-gen-go",
        "protoc-gen-go-grpc",
        "grpc_java_plugin",
        "grpc_cpp_plugin",
        "grpc_ruby_plugin",
    )
    if missing := [each for each in plugins if shutil.which(each) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    code, _, complaints = ran(
        ROOT / ".venv/generate/bin/buf",
        "generate",
        ROOT / "protos",
        "--template",
        ROOT / "protos/buf.gen.yaml",
        "-o",
        tmp_path,
    )
    assert code == 0, complaints
    assert {each.name for each in (tmp_path / "gen").iterdir()} == {"go", "java", "cpp", "ruby"}
    assert all(list((tmp_path / "gen").rglob(name)) for name in ("memory_grpc.pb.go", "MemoryServiceGrpc.java"))


@pytest.mark.stubs
@pytest.mark.parametrize(
    ("word", "found"), [("remember", "MemoryService_CreateMemory"), ("forget", "MemoryService_DeleteMemory")]
)
def test_methods_are_found_by_the_words_of_the_client(tmp_path: Path, word: str, found: str) -> None:
    with server_process(tmp_path / "data", *HTTP) as server:
        flags = [*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000", "--dump-dom"]
        _, lines, _ = ran(chromium(), *flags, f"http://{server.http_address()}/docs?find={word}")
    dom = "\n".join(lines)
    shown = re.findall(r'<details id="(\w+)" data-text="[^"]*">', dom)
    linked = re.findall(r'<li><a href="#(\w+_\w+)">', dom)
    assert found in shown and "MemoryService_CountMemories" not in shown
    assert linked == shown
