"""`mnemon mcp` in its own process, and the official SDK's client for it."""

import io
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client
from mnemon import AsyncClient
from mnemon._mcp.identity import Identity
from mnemon._mcp.server import mcp_server

from tests.support.forks import Fork, PipedFork, run_main, run_to_end
from tests.support.server import START_S, clean_environment, wait_until

_URL = re.compile(r"serving on (http://\S+)")


def command(address: str, *options: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", *_words(address, *options)]


def run_command(address: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the command, which gets no input, until it ends."""
    words = _words(address, *options)
    return run_to_end(Fork, run_main, "mnemon.__main__", words[1:], environment=clean_environment(), timeout_s=START_S)


def _words(address: str, *options: str) -> list[str]:
    return ["mnemon", "--address", address, "mcp", *options]


@dataclass
class HttpProcess:
    """The command over HTTP. Its two outputs are recorded."""

    process: PipedFork
    output: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def url(self) -> str:
        """Its URL. Waits until it serves."""
        wait_until(lambda: _URL.search("".join(self.errors)) or self.process.poll() is not None, START_S)
        found = _URL.search("".join(self.errors))
        assert found, f"the command ended with {self.process.poll()}: {''.join(self.errors)}"
        return found[1]

    def end(self, number: signal.Signals) -> int:
        """Stops it and returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_S)


@contextmanager
def http_process(address: str, *options: str) -> Iterator[HttpProcess]:
    """The command on a free port, stopped afterwards."""
    words = _words(address, "--transport", "http", "--port", "0", *options)
    process = PipedFork(run_main, "mnemon.__main__", words[1:], environment=clean_environment())
    found = HttpProcess(process)
    process.stdin.close()
    with io.TextIOWrapper(process.stdout) as stdout, io.TextIOWrapper(process.stderr) as stderr:
        readers = [
            threading.Thread(target=lambda pipe=pipe, kept=kept: kept.extend(iter(pipe.readline, "")), daemon=True)
            for pipe, kept in ((stdout, found.output), (stderr, found.errors))
        ]
        for reader in readers:
            reader.start()
        try:
            yield found
        finally:
            process.kill()
            for reader in readers:
                reader.join(START_S)


@asynccontextmanager
async def stdio_session(address: str, *options: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client of the command over its stdin and stdout."""
    program, *words = command(address, *options)
    parameters = StdioServerParameters(command=program, args=words, env=clean_environment())
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


@asynccontextmanager
async def inner_session(address: str, identity: Identity) -> AsyncIterator[Client]:
    """A client of the MCP server in this process, which saves the start of an interpreter."""
    async with AsyncClient(address) as mnemon, Client(mcp_server(mnemon, identity, "1.2.3")) as client:
        yield client


def texts_of(result: types.CallToolResult) -> list[str]:
    """The texts of a result that holds only texts."""
    texts = [content.text for content in result.content if isinstance(content, types.TextContent)]
    assert len(texts) == len(result.content)
    return texts


def text_of(result: types.CallToolResult) -> str:
    """The only text of a result."""
    (text,) = texts_of(result)
    return text
