"""Settings of a timeline."""

from dataclasses import dataclass

from mnemon_server.engines.promises.events import SLICE_READS_MAX


@dataclass(frozen=True, slots=True)
class EventEngineSettings:
    """When segments are sealed, and how often maintenance runs."""

    segment_bytes_max: int = 64 << 20
    """Maximum size of the events in a segment, in bytes."""
    segment_events_max: int = 100_000
    """Maximum number of events in a segment."""
    segment_age_max_s: float = 3_600.0
    """Maximum age of an open segment, counted from its first event."""
    slice_reads_max: int = SLICE_READS_MAX
    """Maximum number of events read to evaluate an expression for one slice."""
    scrub_interval_s: float = 86_400.0
    """Interval between complete checks of all data."""
    erase_delay_s: float = 1.0
    """Time from a removal until the affected files are rewritten, so that one rewrite covers several removals."""
    retry_s: float = 1.0
    """Time until the first retry after a failure. It doubles with each further failure."""
    retry_s_max: float = 30.0
    """Maximum time until a retry."""
    joined_min: int = 8
    """Minimum number of small neighbours for an automatic merge. On request, two are enough."""
    rewriting_share_max: float = 0.5
    """Maximum share of time that automatic rewriting may take."""
    scrub_share_max: float = 0.2
    """Maximum share of time that the check of all data may take."""


DEFAULT_TIMELINE = EventEngineSettings()
