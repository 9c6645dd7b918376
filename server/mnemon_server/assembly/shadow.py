"""The shadow embedding model, whose vectors are computed while the server serves with another one."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Self

from mnemon_server.assembly.embedder import open_configured_embedder
from mnemon_server.assembly.settings import is_in_memory
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError, EmbeddingError
from mnemon_server.embedding.base import Embedder, Vector
from mnemon_server.engines.sqlite.upkeep.shadow import ShadowModel, VaultModels
from mnemon_server.services.semantic.vectors import embed_whole

NICE = 19
"""The lowest priority: the process only uses idle time of the cores."""


class ShadowProcess:
    """Runs the model in a process of its own; any thread may call it.

    A thread of this process with a low priority would hold the interpreter lock while it waits for a core. The process
    ends with this one, even if this one is killed, and is started again if it was killed itself.
    """

    def __init__(self, settings: Settings) -> None:
        """Opens the model that the settings name as `embedding_model`.

        Raises:
            ConfigurationError: a setting is invalid.
            EmbeddingError: the model is not available. The message says how to get it.
        """
        self._settings = settings
        self._starting = threading.Lock()
        self._pool = self._started()
        try:
            self.identity = self._pool.submit(_identity, settings).result()
        except BaseException:
            self.close()
            raise

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector per text; for a text that is longer than the model reads, the mean of its parts.

        Raises:
            EmbeddingError: the model failed, or the process ended.
        """
        pool = self._pool
        try:
            return pool.submit(_embed, self._settings, texts).result()
        except BrokenExecutor as error:
            with self._starting:
                if self._pool is pool:
                    self._pool = self._started()
            raise EmbeddingError("the process of the shadow embedding model ended") from error

    def close(self) -> None:
        """Ends the process."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _started() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin)


def open_shadow(settings: Settings) -> ShadowProcess | None:
    """The shadow model, which the caller must close; None if the settings name none.

    Raises:
        ConfigurationError: the settings do not allow one.
        EmbeddingError: the model is not available. The message says how to get it.
    """
    if not settings.embedding_shadow_model:
        return None
    if is_in_memory(settings):
        raise ConfigurationError("embedding_shadow_model needs stored records, and the backend in_memory stores none")
    if settings.embedding_model_dir:
        raise ConfigurationError(
            "embedding_model_dir would also apply to embedding_shadow_model: set embedding_model to the path of the "
            "folder instead"
        )
    # One thread, so that it uses at most one core.
    return ShadowProcess(replace(settings, embedding_model=settings.embedding_shadow_model, embedding_threads=1))


def vault_models(embedder: Embedder, shadow: ShadowProcess | None) -> VaultModels:
    """Both models, as vaults need them.

    Raises:
        ConfigurationError: both are the same.
    """
    embed = partial(_embed_once, embedder)
    if shadow is None:
        return VaultModels(embed)
    if shadow.identity == embedder.model.identity:
        raise ConfigurationError(
            f"embedding_shadow_model is {shadow.identity}, the same as embedding_model: set another one or none"
        )
    return VaultModels(embed, ShadowModel(shadow.identity, shadow.embed))


def _embed_once(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    try:
        return embed_whole(embedder, texts)
    finally:
        # Stored texts are embedded once, and what was erased must not stay in memory.
        embedder.forget()


# In the process

_opened: list[Embedder] = []


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
    os._exit(1)


def _embedder(settings: Settings) -> Embedder:
    if not _opened:
        _opened.append(open_configured_embedder(settings, lambda text: print(text, file=sys.stderr)))  # noqa: T201
        # Only now, because the start of the server waits until the model is open.
        if hasattr(os, "nice"):
            os.nice(NICE)
    return _opened[0]


def _identity(settings: Settings) -> str:
    return _embedder(settings).model.identity


def _embed(settings: Settings, texts: Sequence[str]) -> list[Vector]:
    return _embed_once(_embedder(settings), texts)
