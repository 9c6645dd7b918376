"""The page about the protocols as a library: its examples run and pass mypy, and it names every setting."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from mnemon_server.config.settings import Settings

from tests.support.documents import blocks
from tests.support.repository import ROOT

PAGE = ROOT / "server" / "LIBRARY.md"
EXAMPLES = blocks(PAGE, {"python"})
PROGRAM = "\n".join(each.text for each in EXAMPLES)
OWN_VECTORS = """
from collections.abc import Mapping
from typing import Any
from mnemon_server.vector_store import Neighbour, StoredText, VectorStore

class Required:
    def store(self, id: str, content: str, metadata: dict[str, Any]) -> None: ...
    def get(self, id: str) -> StoredText | None: ...
    def search(self, query: str, n_results: int, where: dict[str, Any] | None = None) -> list[Neighbour]: ...
    def delete(self, id: str) -> None: ...
    def update_metadata(self, id: str, metadata: dict[str, Any]) -> None: ...
    def count(self) -> int: ...
    def heartbeat(self) -> bool: ...

class Wider:
    async def index_document(self, doc_id: str, content: str, metadata: Mapping[str, object] | None = None) -> bool: ...
    async def search(
        self, query: str, top_k: int = 5, filters: Mapping[str, object] | None = None
    ) -> list[SearchResult]: ...
    async def get_by_id(self, doc_id: str) -> Document | None: ...
    async def delete(self, doc_id: str) -> bool: ...
    async def health_check(self) -> bool: ...

own: VectorStore = Required()
wider: KnowledgeStore = Wider()
"""
"""Classes with the signatures of the requirements, and with wider ones."""


def test_the_examples_run_as_printed(tmp_path: Path) -> None:
    environment = os.environ | {"KNOWLEDGE_STORE_BACKEND": "local", "MNEMON_DATA_DIR": str(tmp_path / "data")}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = [line for line in ran.stdout.splitlines() if not re.match(r"\d{4}-\d\d-\d\d", line)]
    assert said == "".join(each.printed or "" for each in EXAMPLES).splitlines()


def test_a_class_with_the_documented_signatures_passes_mypy_as_a_store(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PROGRAM + OWN_VECTORS, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--disable-error-code=empty-body", "own.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_setting_of_the_store_is_on_the_page() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE.read_text("utf-8")))
    of_the_store = re.compile(
        r"knowledge_store|chroma|collection$|data_dir$|embedding|fusion|search|exact_scan|vector_cache"
    )
    settings = {field.name for field in fields(Settings) if of_the_store.match(field.name)}
    assert len(settings) >= 25
    assert settings - named == set()
    aliases = {field.metadata.get("also") for field in fields(Settings)} - {None, ""}
    assert {str(each) for each in aliases} <= named
