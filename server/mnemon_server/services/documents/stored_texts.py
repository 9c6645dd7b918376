"""The texts of a vector store, and the result of a search among them."""

from collections.abc import Mapping
from dataclasses import dataclass

from mnemon_server.domain.records import MetadataValue


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text with its metadata."""

    id: str
    content: str
    metadata: Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A text close to a query. `similarity` is 0 to 1, where 1 is identical; `distance` is the cosine distance, 0
    to 2.
    """

    id: str
    content: str
    metadata: Mapping[str, MetadataValue]
    distance: float
    similarity: float
