"""The texts of warnings about the files of a timeline."""

from collections.abc import Sequence

from mnemon_server.domain.clock import from_microseconds
from mnemon_server.domain.events import LostRange
from mnemon_server.engines.events.tables import SegmentRow
from mnemon_server.engines.promises.events import EventsWarning

_RANGES_NAMED = 10


def full_warning() -> EventsWarning:
    """The disk is full."""
    return EventsWarning(
        "warning",
        "no space is left on the disk for segments of the timeline; acknowledged events are safe",
        "free space, or enlarge the disk; the segments are then written automatically",
    )


def failed_warning(problem: str) -> EventsWarning:
    """The disk failed."""
    return EventsWarning(
        "warning",
        f"segments of the timeline cannot be written: {problem}; acknowledged events are safe",
        "check the disk; the server retries every few seconds",
    )


def unrepaired_warning(problem: str) -> EventsWarning:
    """A segment that may be damaged could not be read or rewritten."""
    return EventsWarning(
        "warning",
        f"a segment of the timeline could not be read or repaired: {problem}; no events were discarded",
        "check the disk, the permissions of the folder, and the limit of open files; the server retries every few"
        " seconds",
    )


def repaired_warning(row: SegmentRow, lost: Sequence[LostRange], kept_at: str) -> EventsWarning:
    """A damaged segment was rewritten. `kept_at` says where the damaged file is; empty if there was none."""
    kept = f"; the damaged file is {kept_at}" if kept_at else ""
    if not lost:
        return EventsWarning(
            "warning",
            f"segment {row.segment_id} of the timeline was damaged and has been rewritten; no event was lost",
            f"check the disk{kept}",
        )
    count = sum(run.event_count for run in lost)
    return EventsWarning(
        "critical",
        f"segment {row.segment_id} of the timeline was damaged, and {_events(count)} lost: {_ranges(lost)}; the "
        f"segment's events range from {_time(row.min_time_us)} to {_time(row.max_time_us)}",
        f"check the disk, and restore the events from a backup{kept}",
    )


def _events(count: int) -> str:
    return "1 event is" if count == 1 else f"{count} events are"


def _ranges(lost: Sequence[LostRange]) -> str:
    named = ", ".join(_range(run) for run in lost[:_RANGES_NAMED])
    rest = len(lost) - _RANGES_NAMED
    return f"sequences {named}" + (f" and {rest} more ranges" if rest > 0 else "")


def _range(run: LostRange) -> str:
    if run.first_sequence == run.last_sequence:
        return str(run.first_sequence)
    whole = run.last_sequence - run.first_sequence + 1
    some = "" if run.event_count == whole else f" ({run.event_count} of them)"
    return f"{run.first_sequence} to {run.last_sequence}{some}"


def _time(time_us: int | None) -> str:
    return "unknown" if time_us is None else from_microseconds(time_us).isoformat()
