"""Opens the embedding model that is configured, in this process or behind an endpoint."""

from collections.abc import Callable
from typing import cast

from mnemon_server.assembly.settings import model_options
from mnemon_server.config.address import Address
from mnemon_server.config.folders import user_cache_folder
from mnemon_server.config.settings import Settings
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.batcher import BATCH_TOKENS_MAX
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph_cache import Precision

Report = Callable[[str], None]


def open_configured_embedder(settings: Settings, report: Report) -> Embedder:
    """The embedder for these settings. The caller must close it.

    Args:
        settings: which model, and where.
        report: called with a sentence before each slow step, and about where texts are sent.

    Raises:
        ConfigurationError: a setting is invalid.
        EmbeddingError: the model is not available. The message says how to get it.
    """
    if settings.embedding_endpoint:
        return _open_endpoint(settings, report)
    return open_embedder(
        settings.embedding_model,
        precision=cast("Precision", settings.embedding_precision),
        model_dir=settings.embedding_model_dir,
        cache_dir=settings.model_cache_dir or user_cache_folder(),
        allow_download=settings.embedding_allow_download,
        threads=settings.embedding_threads,
        progress=report,
        options=model_options(settings),
    )


def batch_tokens_max(settings: Settings) -> int:
    """Maximum tokens of a batch: an endpoint takes more at once than a core of this machine."""
    return settings.embedding_endpoint_tokens_max if settings.embedding_endpoint else BATCH_TOKENS_MAX


def _open_endpoint(settings: Settings, report: Report) -> Embedder:
    # Imported here, because a server without an endpoint need not wait a tenth of a second for httpx.
    from mnemon_server.embedding.endpoint import NAME, EndpointEmbedder, RequestLimits
    from mnemon_server.endpoints.client import EndpointSettings, base_url

    url = base_url(settings.embedding_endpoint)
    if Address(url.host).is_local:
        report(f"texts and queries are sent to {url}, on this machine, to be embedded")
    else:
        how = " without encryption" if url.scheme == "http" else ""
        report(f"texts and queries leave this machine: they are sent to {url}{how} to be embedded")
    endpoint = EndpointSettings(
        name=NAME,
        url=settings.embedding_endpoint,
        key_file=settings.embedding_endpoint_key_file,
        timeout_s=settings.embedding_endpoint_timeout_s,
    )
    limits = RequestLimits(
        settings.embedding_endpoint_texts_max,
        settings.embedding_endpoint_tokens_max,
        settings.embedding_passage_tokens,
    )
    return EndpointEmbedder(
        settings.embedding_model, endpoint, model_options(settings), limits, threads=settings.embedding_threads
    )
