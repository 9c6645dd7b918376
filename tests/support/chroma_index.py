"""Chroma indexes for tests, and what other clients of the same server do."""

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings

from tests.contract.vector_index import DIMENSION, MODEL
from tests.support.chroma_server import ChromaServer

API = "/api/v2/tenants/default_tenant/databases/default_database/collections"

_TERMS: dict[str, Any] = {"collection": "documents", "dimension": DIMENSION, "model_identity": MODEL}


def served(server: ChromaServer, **options: Any) -> ChromaIndex:
    """An index on the server."""
    return ChromaIndex(ChromaSettings(host=server.host, port=server.port), **(_TERMS | options))


def truncate(file: Path) -> None:
    """Cuts the file in half."""
    os.truncate(file, file.stat().st_size // 2)


def request(server: ChromaServer, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
    """What the server answers to any client of its HTTP interface."""
    call = urllib.request.Request(
        f"http://{server.host}:{server.port}{API}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(call, timeout=60) as answer:
        return json.load(answer)


def collection_id(server: ChromaServer, name: str) -> str:
    """The id of a collection."""
    return str(request(server, f"/{name}", method="GET")["id"])
