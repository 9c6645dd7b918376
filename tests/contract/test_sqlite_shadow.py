"""A second embedding model: its vectors are made while the vault is in use, and then exchanged with the vault's own."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import COLLECTIONS, DOCUMENTS, MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import EmbeddingError, EmbeddingModelMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, Vector
from mnemon_server.engines.sqlite.schema import open_reader, open_writer
from mnemon_server.engines.sqlite.upkeep import shadow
from mnemon_server.engines.sqlite.upkeep.overlap import overlap
from mnemon_server.engines.sqlite.upkeep.reembed import reembed
from mnemon_server.engines.sqlite.upkeep.shadow import EmbedTexts, ShadowModel, VaultModels
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.contract.test_sqlite_reembed import other_model
from tests.contract.vault_suite import DIMENSION, found_by_word
from tests.support.server import wait_until

OTHER_DIMENSION = 4


def text_vector(text: str, dimension: int = OTHER_DIMENSION) -> Vector:
    """A vector that only this text has."""
    made = np.random.default_rng(list(text.encode())).normal(size=dimension)
    return (made / np.linalg.norm(made)).astype(np.float32)


def embed_other(texts: Sequence[str]) -> list[Vector]:
    return [text_vector(text) for text in texts]


def embed_own(texts: Sequence[str]) -> list[Vector]:
    return [text_vector(text, DIMENSION) for text in texts]


OWN, OTHER = ("old", DIMENSION, embed_own), ("new", OTHER_DIMENSION, embed_other)
Model = tuple[str, int, EmbedTexts]


@contextmanager
def opened(folder: Path, model: Model = OWN, second: Model | None = None) -> Iterator[SQLiteVault]:
    """A vault with a model, and perhaps a second one."""
    identity, dimension, embed = model
    models = VaultModels(embed, ShadowModel(second[0], second[2]) if second else None)
    settings = VaultSettings(models=models)
    with closing(SQLiteVault(folder, model_identity=identity, dimension=dimension, settings=settings)) as vault:
        yield vault


def document(doc_id: str, content: str, model: Model = OWN) -> DocumentWrite:
    """A document whose two words are its passages, with vectors of a model."""
    middle = content.index(" ")
    bounds = [(0, middle), (middle, len(content))]
    vectors = model[2]([content[start:end] for start, end in bounds])
    passages = [PassageInput(start, end, vector) for (start, end), vector in zip(bounds, vectors, strict=True)]
    return DocumentWrite(document=Document(doc_id, content), passages=passages)


def put(records: RecordEngine, doc_id: str, content: str, model: Model = OWN) -> None:
    records.put_document(document(doc_id, content, model)).result()


def missing(folder: Path) -> int:
    with closing(open_reader(folder / "records.db", VaultKeyFile(folder))) as connection:
        progress = shadow.progress_of(connection)
    assert progress is not None
    return progress.total - progress.done


def vectors_in(vault: SQLiteVault) -> dict[str, Sequence[float]]:
    """The vector of each passage, by its text."""
    return {
        stored.content[passage.start : passage.end]: passage.embedding or ()
        for collection in COLLECTIONS
        for _, stored in vault.collection(collection).list_documents(RecordFilter(), limit=1_000, vectors=True)
        for passage in stored.passages
    }


def has_vectors_of(vault: SQLiteVault, model: Model) -> bool:
    """Whether all passages have the vectors of this model."""
    return all(np.array_equal(vector, model[2]([text])[0]) for text, vector in vectors_in(vault).items())


def damages_of(folder: Path) -> list[str]:
    """The damage found, except in memories, which lack the fields that a service sets."""
    with RecordsVerifier(folder / "records.db", VaultKeyFile(folder)) as verifier:
        found = [damage for step in verifier.run() for damage in step.damages]
    return [str(damage) for damage in found if damage.table != MEMORIES.name]


def test_vectors_are_made_while_records_change_and_are_exchanged_and_taken_back(tmp_path: Path) -> None:
    with opened(tmp_path) as vault:
        for number in range(150):
            put(vault.collection(DOCUMENTS), f"d{number}", f"word{number} text{number}")
    with opened(tmp_path, second=OTHER) as vault:
        records = vault.collection(DOCUMENTS)
        for number in range(0, 150, 3):
            put(records, f"d{number}", f"changed{number} text{number}")
            records.delete_document(f"d{number + 1}").result()
            put(vault.collection(MEMORIES), f"m{number}", f"memory{number} text{number}")
        assert has_vectors_of(vault, OWN)
        wait_until(lambda: missing(tmp_path) == 0 and vault.is_shadow_current())
        put(records, "last", "last text")
    assert damages_of(tmp_path) == []
    with opened(tmp_path, OTHER) as vault:
        records = vault.collection(DOCUMENTS)
        assert has_vectors_of(vault, OTHER)
        assert (records.stats().document_count, records.stats().passage_count) == (101, 202)
        assert vault.collection(MEMORIES).stats().document_count == 50
        [nearest] = records.scan_vectors(embed_other(["changed3"])[0]).best(1).scores
        assert nearest == pytest.approx(1)
        assert found_by_word(records, "changed3").keys() == {"d3"}
        assert found_by_word(records, "word4") == {}
        # The old model is absent, so new passages have no vector of it.
        put(records, "newest", "newest text", OTHER)
        assert missing(tmp_path) == 2
    with opened(tmp_path, OWN, second=OTHER) as vault:
        assert has_vectors_of(vault, OWN)
        assert found_by_word(vault.collection(DOCUMENTS), "newest").keys() == {"newest"}
        wait_until(lambda: missing(tmp_path) == 0)
    assert damages_of(tmp_path) == []


def test_a_model_without_all_vectors_is_refused_and_the_vault_goes_on_with_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as vault:
        put(vault.collection(DOCUMENTS), "first", "some text")
    with closing(open_writer(tmp_path / "records.db", VaultKeyFile(tmp_path))) as connection:
        shadow.prepare(connection, "new")

    def fail(texts: Sequence[str]) -> list[Vector]:
        raise EmbeddingError("no such model")

    with pytest.raises(EmbeddingError), opened(tmp_path, ("new", OTHER_DIMENSION, fail)):
        pass
    with opened(tmp_path) as vault:
        writes = [document(f"d{number}", "some text") for number in range(shadow.MISSING_MAX // 2)]
        vault.collection(DOCUMENTS).put_documents(writes).result()
    with pytest.raises(EmbeddingModelMismatchError, match="only 0 of 1,002 passages"), opened(tmp_path, OTHER):
        pass
    with pytest.raises(EmbeddingModelMismatchError, match="mnemon-server reembed"), opened(tmp_path, ("x", 2, fail)):
        pass
    with opened(tmp_path) as vault:
        assert has_vectors_of(vault, OWN)


def test_a_model_that_fails_is_tried_again_and_a_new_one_replaces_it(tmp_path: Path) -> None:
    failed = threading.Event()

    def fail(texts: Sequence[str]) -> list[Vector]:
        failed.set()
        raise EmbeddingError("the endpoint is away")

    with opened(tmp_path, second=("new", OTHER_DIMENSION, fail)) as vault:
        put(vault.collection(DOCUMENTS), "d", "some text")
        assert failed.wait(60) and not vault.is_shadow_current()
        put(vault.collection(DOCUMENTS), "e", "other text")
    with opened(tmp_path, second=("newer", OTHER_DIMENSION, embed_other)):
        wait_until(lambda: missing(tmp_path) == 0)
    with pytest.raises(EmbeddingModelMismatchError), opened(tmp_path, OTHER):
        pass
    assert list(reembed(VaultKeyFile(tmp_path), "new", other_model))[-1] == (2, 2)
    with closing(open_reader(tmp_path / "records.db", VaultKeyFile(tmp_path))) as connection:
        assert shadow.progress_of(connection) is None


def test_the_overlap_is_that_of_the_nearest_documents(tmp_path: Path) -> None:
    def turned(texts: Sequence[str]) -> list[Vector]:
        return [vector[::-1] for vector in embed_own(texts)]

    shares = []
    for name, embed in (("same", turned), ("other", embed_other)):
        with opened(tmp_path / name, second=("new", 0, embed)) as vault:
            for number in range(60):
                put(vault.collection(DOCUMENTS), f"d{number}", f"word{number} text{number}")
            wait_until(lambda folder=tmp_path / name: missing(folder) == 0)  # type: ignore[misc]
        with closing(open_reader(tmp_path / name / "records.db", VaultKeyFile(tmp_path / name))) as connection:
            shares.append(overlap(connection))
    assert shares[0] == 1
    assert shares[1] is not None and 0.05 < shares[1] < 0.5
