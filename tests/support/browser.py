"""Chromium without a window, and a website that serves a page and hears from it; tests/stubs/browser has the pages."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

CHROMIUM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--ignore-certificate-errors")
PAGE_S = 120.0
"""How long a page may take on a busy machine."""


def chromium() -> str:
    """The browser. Skips if it is not installed."""
    if CHROMIUM is None:
        pytest.skip("Debian's package chromium-headless-shell is not installed")
    return CHROMIUM


class Website:
    """Serves the page of a script, and keeps the lines that the page tells and, over OTLP, its spans."""

    def __init__(self, script: bytes, *, origin: str, certificate: tuple[Path, Path] | None) -> None:
        self.told: list[str] = []
        self.spans: list[Span] = []
        website = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_script = self.path == "/page.js"
                page = script if is_script else b'<!doctype html><script type="module" src="/page.js"></script>'
                self._answer(page, "text/javascript" if is_script else "text/html")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/traces":
                    request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
                    website.spans += [s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
                else:
                    website.told.append(body.decode())
                self._answer(b"", "application/x-protobuf")

            def _answer(self, body: bytes, content_type: str) -> None:
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Writes nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.origin = origin or f"http://{self.address}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)

    def has_ended(self) -> bool:
        """Whether the page has told how it ended."""
        return bool(self.told) and self.told[-1].startswith(("end", "failed"))


@contextmanager
def website(script: Path, *, origin: str = "", certificate: tuple[Path, Path] | None = None) -> Iterator[Website]:
    """A website of this origin, which browsers of `browsing` find here; without one, on a free port of the loopback."""
    made = Website(script.read_bytes(), origin=origin, certificate=certificate)
    threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


@contextmanager
def browsing(site: Website, folder: Path, **given: str) -> Iterator[subprocess.Popen[bytes]]:
    """A browser that opens the page, which is given these values. `folder` gets its profile and its log."""
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}"]
    if (host := urlsplit(site.origin).hostname) not in site.address:
        flags.append(f"--host-resolver-rules=MAP {host} {site.address}")
    with (folder / "chromium.log").open("wb") as log:
        command = [chromium(), *flags, "--remote-debugging-port=0", f"{site.origin}/#{quote(json.dumps(given))}"]
        # A session of its own: the command may be a script, and the browser has several processes.
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
