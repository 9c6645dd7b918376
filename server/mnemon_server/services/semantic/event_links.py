"""The links of statements to the events that they came from: a list of ids in the metadata, the newest last.

A statement that has the key belongs to the bridge, and stands as long as one of its events exists. A statement without
the key was saved by a caller, and is not removed because of an event.
"""

from collections.abc import Collection, Iterable, Mapping

from mnemon_server.domain.bridge import LINK_KEY
from mnemon_server.domain.records import METADATA_LIST_MAX, MetadataValue

PRUNED_KEY = "episodic_pruned"
"""The metadata key that is true for a demoted statement, whose events are all gone."""

Metadata = Mapping[str, MetadataValue]


def is_bridged(metadata: Metadata) -> bool:
    """Whether the statement belongs to the bridge."""
    return isinstance(metadata.get(LINK_KEY), tuple)


def links_of(metadata: Metadata) -> tuple[str, ...]:
    """The ids of the events that the statement is linked to; empty if a caller saved it."""
    links = metadata.get(LINK_KEY)
    return links if isinstance(links, tuple) else ()


def with_links(metadata: Metadata, links: Iterable[str]) -> dict[str, MetadataValue]:
    """The metadata with the newest of these links. A statement with a link is no longer demoted."""
    kept = tuple(dict.fromkeys(links))[-METADATA_LIST_MAX:]
    linked = {**metadata, LINK_KEY: kept}
    if kept:
        linked.pop(PRUNED_KEY, None)
    return linked


def merged_metadata(first: Metadata, second: Metadata) -> dict[str, MetadataValue]:
    """The metadata of a merged statement: the second's values win, and the links are those of both."""
    both = {**first, **second}
    if not is_bridged(first) and not is_bridged(second):
        return both
    return with_links(both, (*links_of(first), *links_of(second)))


def without(links: Iterable[str], gone: Collection[str]) -> tuple[str, ...]:
    """The links that are left."""
    return tuple(link for link in links if link not in gone)
