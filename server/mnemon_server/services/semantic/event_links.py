"""The links of statements to the events that they came from: a list of ids in the metadata, the newest last.

A statement that has the key is one of the bridge's own, and stands for as long as one of its events does. A statement
without it was told directly, and nothing that happens to an event removes it.
"""

from collections.abc import Collection, Iterable, Mapping

from mnemon_server.domain.bridge import LINK_KEY
from mnemon_server.domain.records import METADATA_LIST_MAX, MetadataValue

PRUNED_KEY = "episodic_pruned"
"""The key of the metadata of a demoted statement, whose events are all gone: true."""

Metadata = Mapping[str, MetadataValue]


def is_bridged(metadata: Metadata) -> bool:
    """Whether the statement is one of the bridge's own."""
    return isinstance(metadata.get(LINK_KEY), tuple)


def links_of(metadata: Metadata) -> tuple[str, ...]:
    """The ids of the events that the statement is linked to; none where it was told directly."""
    links = metadata.get(LINK_KEY)
    return links if isinstance(links, tuple) else ()


def with_links(metadata: Metadata, links: Iterable[str]) -> dict[str, MetadataValue]:
    """The metadata with these links, of which the newest are kept; with one, nothing is pruned any more."""
    kept = tuple(dict.fromkeys(links))[-METADATA_LIST_MAX:]
    linked = {**metadata, LINK_KEY: kept}
    if kept:
        linked.pop(PRUNED_KEY, None)
    return linked


def merged_metadata(first: Metadata, second: Metadata) -> dict[str, MetadataValue]:
    """The metadata of what two statements were merged into: the second's counts, but the links are those of both."""
    both = {**first, **second}
    if not is_bridged(first) and not is_bridged(second):
        return both
    return with_links(both, (*links_of(first), *links_of(second)))


def without(links: Iterable[str], gone: Collection[str]) -> tuple[str, ...]:
    """The links that are left."""
    return tuple(link for link in links if link not in gone)
