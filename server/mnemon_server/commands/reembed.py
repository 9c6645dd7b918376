"""Replaces the vectors of all documents by those of the configured embedding model."""

import contextlib
from collections.abc import Generator, Iterator, Sequence

from mnemon.shared.terminal import echo

from mnemon_server.assembly.embedder import open_configured_embedder
from mnemon_server.assembly.master_keys import read_master_keys
from mnemon_server.assembly.records import stored_tenants, vault_folder, vaults_folder
from mnemon_server.assembly.settings import heads_of
from mnemon_server.config.settings import Settings
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.folder import FolderInUseError, FolderLock
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.engines.sqlite.upkeep.reembed import reembed
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.services.archive.vectors import as_stored, stored_texts
from mnemon_server.services.search.embedded_passages import embed_blocking


def reembed_documents(settings: Settings) -> Generator[tuple[int, int]]:
    """Embeds and indexes all documents anew, each tenant's in one transaction, while no server uses the folder.

    A collection on a ChromaDB server is left alone, since other programs may use it: configure a new name for
    the new model's.

    Yields:
        The number of finished documents, and the total.

    Raises:
        ConfigurationError: nothing is stored, or a server uses the folder.
        EmbeddingError: the model is not available.
    """
    if settings.knowledge_store_backend == "in_memory":
        raise ConfigurationError("the backend in_memory keeps no records, so there is nothing to re-embed")
    master = read_master_keys(settings)
    keys_of = [VaultKeyFile(vault_folder(settings, tenant), master) for tenant in stored_tenants(settings)]
    with contextlib.closing(open_configured_embedder(settings, _print_line)) as embedder:
        heads = heads_of(settings)

        def embed(collection: Collection, documents: Sequence[Document]) -> list[list[PassageInput]]:
            texts = [stored_texts(collection, document, heads) for document in documents]
            return as_stored(collection, documents, embed_blocking(embedder, texts))

        with contextlib.ExitStack() as stack:
            # All folders are locked before anything changes: a server must not find some vaults changed, and some not.
            with _explained(settings):
                if (folder := vaults_folder(settings)).exists():
                    # A server locks it as long as it runs, and each vault only while that is open.
                    stack.enter_context(FolderLock(folder))
                vaults = [
                    stack.enter_context(contextlib.closing(reembed(keys, embedder.model.identity, embed, heads)))
                    for keys in keys_of
                ]
                totals = [next(vault)[1] for vault in vaults]
            finished = 0
            for vault, count in zip(vaults, totals, strict=True):
                for done, _ in vault:
                    yield finished + done, sum(totals)
                finished += count


@contextlib.contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    """Says what to do if another process has locked a folder."""
    try:
        yield
    except FolderInUseError as error:
        raise ConfigurationError(
            f"a server uses the data folder {str(settings.data_dir)!r}, and nothing has changed: stop the server, run "
            f"this command again, and then start the server with the embedding model {settings.embedding_model}"
        ) from error


def _print_line(sentence: str) -> None:
    echo(sentence, err=True)
