"""An OpenAI-compatible endpoint that runs the default model, as an operator would run one beside the server.

python -m tests.bench.embedding_endpoint 127.0.0.1:8080
"""

import json
import signal
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from mnemon_server.assembly.embedder import open_configured_embedder
from mnemon_server.config.settings import Settings
from mnemon_server.embedding.base import Embedder


def handler_of(embedder: Embedder) -> type[BaseHTTPRequestHandler]:
    """Answers requests for embeddings."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and content are two writes; without this, the second one would wait for the first to be confirmed.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            vectors = embedder.embed(texts).tolist()
            data = [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]
            answer = json.dumps({"object": "list", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    return Handler


def serve(address: str) -> None:
    """Serves until SIGTERM."""
    host, _, port = address.rpartition(":")
    with (
        closing(open_configured_embedder(Settings(), lambda _: None)) as embedder,
        ThreadingHTTPServer((host, int(port)), handler_of(embedder)) as server,
    ):
        signal.signal(signal.SIGTERM, lambda *_: Thread(target=server.shutdown).start())
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1])
