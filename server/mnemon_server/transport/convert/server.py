"""The server's description of itself, as a message."""

from collections.abc import Iterator

from mnemon.v1 import common_pb2
from mnemon.v1 import server_pb2 as pb

from mnemon_server import __version__
from mnemon_server.config.settings import Settings
from mnemon_server.domain.documents import CONTENT_BYTES_MAX
from mnemon_server.embedding.base import EmbeddingModel
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import BULK_REQUESTS_MAX, PAGE_SIZE_MAX
from mnemon_server.wire.values import duration_to_pb

DAY_S = 86_400
API_REVISION = 1
"""Grows by one with every release that adds to mnemon.v1; see protos/README.md."""


def info_to_pb(settings: Settings, model: EmbeddingModel, vault_id: str) -> pb.GetServerInfoResponse:
    """The capabilities and limits of the server. It holds no address, path or credential of the settings."""
    return pb.GetServerInfoResponse(
        version=__version__,
        api_revision=API_REVISION,
        capabilities=_capabilities(settings),
        limits=_limits_to_pb(settings, model),
        embedding_model=filled(common_pb2.EmbeddingModel(), model),
        vault_id=vault_id,
    )


def _capabilities(settings: Settings) -> Iterator[pb.Capability.ValueType]:
    if settings.knowledge_store_backend != "in_memory":
        yield pb.CAPABILITY_DURABLE
    if settings.fusion == "absolute":
        yield pb.CAPABILITY_ABSOLUTE_SCORES
    if settings.search_reranking:
        yield pb.CAPABILITY_RERANKING
    if settings.timeline_embeddings:
        yield pb.CAPABILITY_TIMELINE_VECTORS
    if settings.bridge_enabled:
        yield pb.CAPABILITY_BRIDGE


def _limits_to_pb(settings: Settings, model: EmbeddingModel) -> pb.ServerLimits:
    return pb.ServerLimits(
        message_bytes=settings.max_message_mib << 20,
        answer_bytes=ANSWER_BYTES_MAX,
        content_bytes=CONTENT_BYTES_MAX,
        bulk_requests=BULK_REQUESTS_MAX,
        page_size=PAGE_SIZE_MAX,
        unary_calls=settings.unary_calls_max,
        streams=settings.streams_max,
        default_deadline=duration_to_pb(settings.default_deadline_s),
        change_retention=duration_to_pb(settings.change_retention_days * DAY_S),
        embedding_tokens=model.tokens_max,
    )
