"""How a timeline is kept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimelineSettings:
    """When a segment gets no more events, and how often the files are looked after."""

    segment_bytes_max: int = 64 << 20
    """A segment of so many bytes is full."""
    segment_events_max: int = 100_000
    """A segment of so many events is full."""
    segment_age_max_s: float = 3_600.0
    """So long after its first event, a segment gets no more."""
    scrub_interval_s: float = 86_400.0
    """Everything is read and checked so often."""
    sync_interval_s: float = 0.2
    """An event is in its segment's file, and on the disk, about so long after its commit, ..."""
    sync_bytes: int = 1 << 20
    """... or once so many bytes wait."""
    note_interval_s: float = 1.0
    """How far a file is on the disk is noted with the next transaction, or after so long by one of its own."""
    erase_delay_s: float = 1.0
    """Files are rewritten without what was removed so long after a removal, so that one rewriting serves several."""
    retry_s: float = 1.0
    """What failed is tried again after so long, then after twice as long, ..."""
    retry_s_max: float = 30.0
    """... and so on up to this."""
    joined_min: int = 8
    """So many small neighbours are joined without being asked; on request, two."""
    compaction_share_max: float = 0.5
    """Compaction that nobody asked for takes at most this share of the time, ..."""
    scrub_share_max: float = 0.2
    """... and reading everything at most this one."""


DEFAULT_TIMELINE = TimelineSettings()
