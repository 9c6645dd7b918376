"""The examples of server/LIBRARY.md as one program, and with classes of stores, for mypy.

python -m tests.support.library_page FILE writes the file that `make type` checks.
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
from typing import Any
from mnemon_server.vector_store import Neighbour, StoredText, VectorStore

class Required:
    def store(self, id: str, content: str, metadata: dict[str, Any]) -> None:
        raise NotImplementedError
    def get(self, id: str) -> StoredText | None:
        raise NotImplementedError
    def search(self, query: str, n_results: int, where: dict[str, Any] | None = None) -> list[Neighbour]:
        raise NotImplementedError
    def delete(self, id: str) -> None:
        raise NotImplementedError
    def update_metadata(self, id: str, metadata: dict[str, Any]) -> None:
        raise NotImplementedError
    def count(self) -> int:
        raise NotImplementedError
    def heartbeat(self) -> bool:
        raise NotImplementedError

class Wider:
    async def index_document(self, doc_id: str, content: str, metadata: Mapping[str, object] | None = None) -> bool:
        raise NotImplementedError
    async def search(
        self, query: str, top_k: int = 5, filters: Mapping[str, object] | None = None
    ) -> list[SearchResult]:
        raise NotImplementedError
    async def get_by_id(self, doc_id: str) -> Document | None:
        raise NotImplementedError
    async def delete(self, doc_id: str) -> bool:
        raise NotImplementedError
    async def health_check(self) -> bool:
        raise NotImplementedError

own: VectorStore = Required()
wider: KnowledgeStore = Wider()
"""
"""Classes with the signatures of the requirements, and with wider ones: both must pass as stores."""

if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PROGRAM + OWN_STORES, encoding="utf-8")
