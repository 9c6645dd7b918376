"""The examples of server/LIBRARY.md as one program, and with classes of stores, for mypy.

python -m tests.support.page_examples FILE writes the file that `make type` checks.
"""

import sys
from pathlib import Path

from tests.support.documents import blocks
from tests.support.repository import ROOT

PAGE = ROOT / "server" / "LIBRARY.md"
EXAMPLES = blocks(PAGE, {"python"})
PROGRAM = "\n".join(each.text for each in EXAMPLES)
OWN_STORES = """
from collections.abc import Mapping
from typing import Any, Protocol
from mnemon_server.vector_store import Neighbour, StoredText, VectorStore

class Required(Protocol):
    def store(self, id: str, content: str, metadata: dict[str, Any]) -> None: ...
    def get(self, id: str) -> StoredText | None: ...
    def search(self, query: str, n_results: int, where: dict[str, Any] | None = None) -> list[Neighbour]: ...
    def delete(self, id: str) -> None: ...
    def update_metadata(self, id: str, metadata: dict[str, Any]) -> None: ...
    def count(self) -> int: ...
    def heartbeat(self) -> bool: ...

class Wider(Protocol):
    async def index_document(self, doc_id: str, content: str, metadata: Mapping[str, object] | None = None) -> bool: ...
    async def search(
        self, query: str, top_k: int = 5, filters: Mapping[str, object] | None = None
    ) -> list[SearchResult]: ...
    async def get_by_id(self, doc_id: str) -> Document | None: ...
    async def delete(self, doc_id: str) -> bool: ...
    async def health_check(self) -> bool: ...

def as_vector_store(own: Required) -> VectorStore:
    return own

def as_knowledge_store(own: Wider) -> KnowledgeStore:
    return own
"""
"""Classes with the signatures of the requirements, and with wider ones: both must pass as stores."""

if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PROGRAM + OWN_STORES, encoding="utf-8")
