"""Information about a server."""

from dataclasses import dataclass
from enum import StrEnum

from mnemon._values.documents import EmbeddingModel, JsonValue


class Capability(StrEnum):
    """Something that servers can be set to do or not to do.

    `durable`: what is acknowledged survives a restart. `absolute_scores`: scores compare from one query to the next.
    `reranking`: searches look again at the best results. `timeline_vectors`: events are found by meaning, too.
    `bridge`: events become statements as the routing policy says.
    """

    DURABLE = "durable"
    ABSOLUTE_SCORES = "absolute_scores"
    RERANKING = "reranking"
    TIMELINE_VECTORS = "timeline_vectors"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits(JsonValue):
    """The server's limits. The clients respect all of them by themselves."""

    message_bytes: int
    answer_bytes: int
    """Where answers of searches, lists and batch reads end."""
    content_bytes: int
    """Of the largest text of a record."""
    bulk_requests: int
    page_size: int
    unary_calls: int
    """Single calls at the same time, for all clients together."""
    streams: int
    default_deadline_s: float
    change_retention_s: float
    """How long a watcher may be away."""
    embedding_tokens: int
    """Tokens that the model reads of one text."""


@dataclass(frozen=True, slots=True)
class ServerInfo(JsonValue):
    """The capabilities and limits of a server. They do not change while the server runs."""

    version: str
    """The server's release."""
    api_revision: int
    """The revision of the API; every addition increases it."""
    capabilities: tuple[Capability, ...]
    limits: ServerLimits
    embedding_model: EmbeddingModel
    vault_id: str
    """Identifies the vault, for as long as it exists."""
