"""The stores as a library: event loops, and arguments of the wrong type."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError
from mnemon_server.knowledge_store import (
    ChromaDBStore,
    InMemoryStore,
    KnowledgeStoreError,
    LocalStore,
)
from mnemon_server.vector_store import LocalVectorStore

from tests.contract.knowledge_store import PETS, ids

MODEL = "hashing"
WRONG_IN_DOCUMENTS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("document.doc_id: must be a text, not int", lambda store: store.index_document(5, "a")),
    ("document.content: must be a text, not NoneType", lambda store: store.index_document("a", None)),
    (
        "document.metadata: must be a mapping of keys to values, not str",
        lambda store: store.index_document("a", "b", ""),
    ),
    ("query: must be a text, not int", lambda store: store.search(5)),
    ("top_k: must be a whole number, not str", lambda store: store.search("a", top_k="3")),
    ("filters: must be a mapping of keys to values, not list", lambda store: store.search("a", filters=["topic"])),
    ("doc_id: must be a text, not int", lambda store: store.get_by_id(5)),
    ("doc_id: must be a text, not bytes", lambda store: store.delete(b"a")),
)
WRONG_IN_VECTORS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("id: must be a text, not int", lambda store: store.store(5, "a")),
    ("content: must be a text, not NoneType", lambda store: store.store("a", None)),
    ("metadata: must be a mapping of keys to values, not str", lambda store: store.store("a", "b", "c")),
    ("query: must be a text, not int", lambda store: store.search(5)),
    ("n_results: must be a whole number, not bool", lambda store: store.search("a", n_results=True)),
    ("where: must be a mapping of keys to values, not list", lambda store: store.search("a", where=["topic"])),
    ("id: must be a text, not int", lambda store: store.get(5)),
    ("id: must be a text, not bytes", lambda store: store.delete(b"a")),
    ("metadata: must be a mapping of keys to values, not NoneType", lambda store: store.update_metadata("a", None)),
)
WRONG_SETTINGS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("data_dir", lambda: LocalStore(data_dir=5)),  # type: ignore[arg-type]
    ("chroma_port", lambda: ChromaDBStore(host="localhost", port="eight")),  # type: ignore[arg-type]
    ("embedding_model", lambda: InMemoryStore(embedding_model=5)),  # type: ignore[arg-type]
    ("data_dir", lambda: LocalVectorStore(5)),  # type: ignore[arg-type]
)


def test_a_store_serves_one_event_loop_after_the_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = LocalStore(data_dir=str(tmp_path / "data"), embedding_model=MODEL)

    async def also_elsewhere() -> None:
        await store.index_document("dogs", PETS["dogs"])
        with pytest.raises(KnowledgeStoreError, match="open in another event loop"):
            await asyncio.to_thread(asyncio.run, store.get_by_id("dogs"))

    async def while_closing() -> list[str]:
        found, _ = await asyncio.gather(store.search(PETS["dogs"]), store.aclose())
        return [*ids(found), *ids(await store.search(PETS["dogs"]))]

    asyncio.run(also_elsewhere())
    assert ids(asyncio.run(store.search(PETS["dogs"]))) == ["dogs"]
    assert asyncio.run(while_closing()) == ["dogs", "dogs"]
    asyncio.run(store.aclose())
    assert "Traceback" not in capfd.readouterr().err


async def test_an_argument_of_the_wrong_type_is_named(tmp_path: Path) -> None:
    async with InMemoryStore(embedding_model=MODEL) as documents:
        for sentence, call in WRONG_IN_DOCUMENTS:
            with pytest.raises(KnowledgeStoreError, match=f"^{sentence}") as raised:
                await call(documents)
            assert isinstance(raised.value, InvalidArgumentError)
    with LocalVectorStore(str(tmp_path), embedding_model=MODEL) as vectors:
        for sentence, call in WRONG_IN_VECTORS:
            with pytest.raises(InvalidArgumentError, match=f"^{sentence}"):
                call(vectors)


@pytest.mark.parametrize(("name", "make"), WRONG_SETTINGS)
def test_a_setting_of_the_wrong_type_is_named(name: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make()
