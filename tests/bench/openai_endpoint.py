"""An OpenAI-compatible endpoint, as an operator would run one beside the server: it embeds by the default model, and
judges that all pairs of statements contradict each other.

python -m tests.bench.openai_endpoint 127.0.0.1:8080
"""

import json
import signal
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mnemon_server.assembly.embedder import open_configured_embedder
from mnemon_server.config.settings import Settings
from mnemon_server.embedding.base import Embedder


def embeddings(embedder: Embedder, request: Any) -> Any:
    """The answer to a request for embeddings."""
    vectors = embedder.embed(request["input"]).tolist()
    data = [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]
    return {"object": "list", "data": data}


def judgement(request: Any) -> Any:
    """The answer to a question of `services/conflicts/chat_judge.py`."""
    pairs = json.loads(request["messages"][-1]["content"])
    said = {"relation": "contradicts", "confidence": 0.9, "reason": "as always"}
    content = json.dumps({"answers": [{"pair": pair["pair"], **said} for pair in pairs]})
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}


def handler_of(embedder: Embedder) -> type[BaseHTTPRequestHandler]:
    """Answers requests for embeddings, and questions to a judge."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and content are two writes; without this, the second one would wait for the first to be confirmed.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_question = self.path.endswith("/chat/completions")
            answer = json.dumps(judgement(request) if is_question else embeddings(embedder, request)).encode()
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
